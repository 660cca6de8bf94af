"""One subtask of one micro-batch, from instruction to acknowledgement.

Everything a task writes is staged under a name that no other task attempt has. Nothing becomes
visible: the driver publishes what the acknowledgement names, or never looks at it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.contracts.sink import SinkWriter, WriterContext
from penstock.errors import PenstockError
from penstock.graph.job_graph import Node
from penstock.graph.transformation import OperatorKind
from penstock.ids import AttemptId, StageId
from penstock.state.backends.refs import StagedName, staged_prefix
from penstock.state.local_dir import remove_older_attempts
from penstock.task.executor_id import executor_id
from penstock.task.failure import StepFailed, pack, with_call_site
from penstock.task.heads.context import HeadContext, Phases
from penstock.task.heads.keyed import run_keyed
from penstock.task.heads.keyed_batch import run_keyed_batch
from penstock.task.heads.plain import run_batches, run_plain
from penstock.task.heads.source import run_native, run_source
from penstock.task.heads.window import run_windows
from penstock.task.layout import file_name
from penstock.task.messages import Acknowledgement, ChannelOutput, Instruction, SubtaskLocation
from penstock.task.operators.functions import OperatorFunctions
from penstock.task.relayed_files import relay_files
from penstock.task.shuffle.records import ShuffleMessages
from penstock.task.stage_task import StageTask, load_task
from penstock.task.staged_files import remove_staged

HEADS: dict[OperatorKind, Callable[[HeadContext], None]] = {
    **{kind: run_keyed if kind.is_keyed else run_plain for kind in OperatorKind},
    OperatorKind.SOURCE: run_source,
    OperatorKind.NATIVE: run_native,
    OperatorKind.PROCESS_BATCH: run_batches,
    OperatorKind.KEYED_PROCESS_BATCH: run_keyed_batch,
    OperatorKind.WINDOW: run_windows,
}
"""How the first operator of a stage runs over the input of a task, by its kind."""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """Spark's identity of a task."""

    subtask: int
    task_attempt_id: int
    attempt_number: int


_FunctionsKey = tuple[tuple[str, AttemptId], StageId, int]


@dataclass(slots=True)
class _OpenFunctions:
    name: str
    """The task attempt that left them open."""
    task: StageTask
    functions: OperatorFunctions


_open_functions: dict[_FunctionsKey, _OpenFunctions] = {}
"""Functions left open in this worker, by (job, attempt), stage and subtask."""


def run_subtask(
    task: bytes,
    instruction: Instruction,
    attempt: TaskAttempt,
    batches: Iterator[pa.RecordBatch] | None = None,
    shuffle: ShuffleMessages | None = None,
) -> Acknowledgement:
    """Run one subtask; called in a worker, once per task attempt.

    `batches` is what Spark itself read, for a source that leaves reading to it. `shuffle` is what
    comes and goes by Spark's shuffle, where the stage has such channels. An error that a retry
    would not change comes back inside the acknowledgement; any other exception fails the task
    attempt, which Spark may retry.
    """
    name = instruction.attempt, instruction.batch, instruction.try_number
    staged = StagedName(*name, attempt.subtask, attempt.task_attempt_id)
    try:
        return _run(task, instruction, attempt, staged, batches, shuffle or ShuffleMessages())
    except StepFailed as failed:
        error = failed.error
    except PenstockError as raised:
        error = raised
    return Acknowledgement(attempt.subtask, str(staged), failure=pack(error))


def _run(
    data: bytes,
    instruction: Instruction,
    attempt: TaskAttempt,
    staged: StagedName,
    batches: Iterator[pa.RecordBatch] | None,
    shuffle: ShuffleMessages,
) -> Acknowledgement:
    phases = Phases()
    job_attempt = instruction.job, AttemptId(instruction.attempt)
    key = job_attempt, StageId(instruction.stage), attempt.subtask
    task, functions = _take_functions(key, data, instruction, attempt)
    task.layout.check_host()
    if task.layout.unshared is not None:
        # A stage without state has files on its hosts, too: what its sinks stage.
        remove_older_attempts(task.layout.attempt_dirs)
        for lost in range(instruction.try_number):
            prefix = staged_prefix(instruction.attempt, instruction.batch, lost)
            remove_staged(task.layout, task.stage, [attempt.subtask], f"{prefix}*")
    sinks = [node for node in task.stage.nodes if node.kind is OperatorKind.SINK]
    writers = {node.id: _writer(node, task, attempt.subtask, staged) for node in sinks}
    try:
        context = HeadContext(
            task, instruction, attempt.subtask, staged, functions, writers, batches, shuffle, phases
        )
        acknowledgement = _process(context)
    except BaseException as error:
        for writer in writers.values():
            with suppress(Exception):
                writer.abort()
        remove_staged(task.layout, task.stage, [attempt.subtask], str(staged))
        if isinstance(error, PenstockError):
            # Of state that was written after the last record: no line of the program runs then.
            raise with_call_site(error, task.stage.head.call_site) from error
        raise
    if not instruction.closes_functions:
        _keep_functions(key, _OpenFunctions(str(staged), task, functions))
    return acknowledgement


def _process(context: HeadContext) -> Acknowledgement:
    # A crash anywhere in here leaves only staged files that no acknowledgement names: the micro-
    # batch runs again from the last published version, and nothing reads those files.
    phases, functions, staged = context.phases, context.functions, str(context.staged)
    phases.mark("set up")
    HEADS[context.node.kind](context)
    context.chain.drain()
    operator_state = functions.snapshot(context.instruction.snapshot_id)
    phases.mark("process")
    outputs = [
        ChannelOutput(partitioner.channel.id, segment)
        for partitioner in context.partitioners
        if (segment := partitioner.finish()) is not None
    ]
    if context.instruction.closes_functions:
        functions.close()
    sinks = {i: w.stage() for i, w in context.writers.items()}
    relayed = relay_files(context.task.layout, context.stage, staged)
    phases.mark("write")
    result, local = context.result, str(context.task.layout.local.resolve())
    return Acknowledgement(
        subtask=context.subtask,
        name=staged,
        records_in=result.records_in,
        records_out=sum(p.count for p in context.partitioners),
        bytes_in=context.work.size + context.shuffle.input.size,
        bytes_out=sum(p.size for p in context.partitioners),
        operators=context.chain.counts.by_operator(result.records_in),
        event_time_lag=result.event_time_lag,
        rocksdb=result.rocksdb,
        outputs=outputs,
        sinks=sinks,
        relayed=relayed,
        state=result.state,
        operator_state=operator_state,
        timers=result.timers,
        times=context.time.split_watermarks(staged),
        snapshot=result.snapshot,
        counters=functions.take_counters(),
        figures=functions.take_metrics(),
        changed_fields=functions.changed_fields(),
        phases=phases.seconds,
        location=SubtaskLocation(socket.gethostname(), local, result.rebuilt, executor_id()),
    )


def _take_functions(
    key: _FunctionsKey, data: bytes, instruction: Instruction, attempt: TaskAttempt
) -> tuple[StageTask, OperatorFunctions]:
    """Return the stage and its functions, reused if they are as the last micro-batch left them.

    Those of a lost try are not: their fields may hold what never counted.
    """
    kept = _open_functions.pop(key, None)
    if kept is not None and kept.name == instruction.work[attempt.subtask].previous:
        return kept.task, kept.functions
    if kept is not None:
        # An error in close() of a lost try must not fail this one.
        with suppress(StepFailed):
            kept.functions.close()
    task = load_task(data)
    subtask, number = attempt.subtask, attempt.attempt_number
    return task, OperatorFunctions(task.stage, subtask, number, task.parameters)


def _keep_functions(key: _FunctionsKey, functions: _OpenFunctions) -> None:
    """Leave functions open for the next micro-batch, and close those of ended job attempts."""
    for other in list(_open_functions):
        # Inline jobs run tasks in several threads: another one may have closed it already.
        if other[0] != key[0] and (left := _open_functions.pop(other, None)) is not None:
            with suppress(StepFailed):
                left.functions.close()
    _open_functions[key] = functions


def _writer(node: Node, task: StageTask, subtask: int, staged: StagedName) -> SinkWriter:
    layout, directories = task.layout, task.layout.sink_dirs_of_task(node.uid)
    context = WriterContext(
        subtask=subtask,
        parallelism=node.parallelism,
        staging_dir=directories.staging,
        name=str(staged),
        type_info=node.input_type,
        job=layout.job,
        attempt=layout.attempt,
        work_dir=directories.work,
        job_instance=layout.job_instance,
        store=layout.connector_store and layout.connector_store / file_name(node.uid),
    )
    writer: SinkWriter = node.function.writer(context)
    return writer
