"""One subtask of one micro-batch, from instruction to acknowledgement.

Everything written here is staged under a name no other task attempt has. Nothing becomes
visible: the driver publishes what the acknowledgement names, or never looks at it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.channel.columns import decoder_for
from penstock.channel.segment import SegmentWriter, SliceWriter, read_slices
from penstock.common import pickling
from penstock.common.event_time import NO_TIMESTAMP
from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.connectors.source import Chunk, Source, TimedChunk
from penstock.datastream.functions import KeySelector, Partitioner
from penstock.datastream.window.operation import WindowOperation
from penstock.errors import InvalidJobError, PenstockError
from penstock.graph.job_graph import Node
from penstock.graph.plan import Channel, Stage
from penstock.graph.transformation import Exchange, OperatorKind
from penstock.ids import AttemptId, ChannelId, StageId
from penstock.state.backends.base import (
    FileRef,
    LocalSnapshot,
    StagedName,
    StatePlace,
    StateRef,
    StateStore,
)
from penstock.state.backends.registry import backend_named
from penstock.state.key_groups import KeyGroupRange, key_group_range
from penstock.state.keyed import KeyedStates
from penstock.state.keys import KeyCodec
from penstock.task.batch_step import PushColumns
from penstock.task.chain import Chain, Output, Push
from penstock.task.chain_time import ChainTime
from penstock.task.context import BroadcastStates, SubtaskFacts
from penstock.task.emit import CustomEmitter, DealEmitter, Emitter, KeyEmitter
from penstock.task.failure import StepFailed, fail, pack
from penstock.task.keyed import (
    STRIDE,
    HeadTime,
    KeyedHead,
    KeyedInput,
    Part,
    one_key_after_the_other,
    read_keyed,
)
from penstock.task.keyed_batch import KeyedBatch, read_keyed_batch, run_keyed_batch
from penstock.task.layout import Layout, file_name
from penstock.task.messages import (
    Acknowledgement,
    ChannelOutput,
    Home,
    Instruction,
    NextTimers,
)
from penstock.task.moment import Moment
from penstock.task.operators import Operators, callable_of
from penstock.task.parcels import Mail
from penstock.task.timer_service import KeyedTimerService, Timers
from penstock.task.window.head import WindowHead
from penstock.task.window.operator import WindowParts


@dataclass(frozen=True, slots=True)
class StageTask:
    """What every task of a stage needs to know; shipped to workers once, as bytes."""

    stage: Stage
    layout: Layout
    backend: str
    batch_mode: bool
    parameters: Mapping[str, str]
    inner: frozenset[ChannelId] = frozenset()
    """The channels of its group, whose records the engine carries."""


def load_task(shipped: bytes) -> StageTask:
    """Return a stage out of what `ship` made of it."""
    task: StageTask
    _, task = pickling.loads(shipped)
    return task


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """Who runs: Spark's facts about the task."""

    subtask: int
    task_attempt_id: int
    attempt_number: int


@dataclass(slots=True)
class _Live:
    name: str
    task: StageTask
    operators: Operators


_PASSING_ON = (OperatorKind.SOURCE, OperatorKind.DECOUPLE, OperatorKind.NATIVE)
"""Heads that hand every record on as it is."""

_live: dict[tuple[tuple[str, AttemptId], StageId, int], _Live] = {}
"""Functions left open in this worker, by whose they are; see `_functions_for`."""


def run_subtask(
    task: bytes,
    instruction: Instruction,
    who: TaskAttempt,
    batches: Iterator[pa.RecordBatch] | None = None,
    mail: Mail | None = None,
) -> Acknowledgement:
    """Run one subtask; called in a worker, once per task attempt.

    `batches` is what Spark itself read, for a source that leaves reading to it. `mail` is what
    comes and goes by Spark's shuffle, where the stage has such channels. An error that a retry
    would not change comes back inside the acknowledgement; any other exception is the task
    attempt's failure and Spark's to retry.
    """
    staged = StagedName(
        instruction.attempt,
        instruction.batch,
        instruction.try_number,
        who.subtask,
        who.task_attempt_id,
    )
    try:
        return _Run(task, instruction, who, staged, batches, mail or Mail()).acknowledge()
    except StepFailed as failed:
        return Acknowledgement(who.subtask, str(staged), failure=pack(failed.error))
    except PenstockError as error:
        return Acknowledgement(who.subtask, str(staged), failure=pack(error))


class _Run:
    def __init__(
        self,
        task: bytes,
        instruction: Instruction,
        who: TaskAttempt,
        staged: StagedName,
        batches: Iterator[pa.RecordBatch] | None,
        mail: Mail,
    ) -> None:
        self._instruction = instruction
        self._who = who
        self._staged = staged
        self._batches = batches
        self._mail = mail
        self._work = instruction.work[who.subtask]
        self._clock = _Phases()
        self._task, self._operators, self._is_new = self._functions_for(task)
        self._stage = self._task.stage
        self._layout = self._task.layout
        has_broadcast = self._stage.head.kind.has_broadcast_side
        self._broadcast_side = [c for c in self._stage.inputs if has_broadcast and c.input == 1]
        self._element_side = [c for c in self._stage.inputs if c not in self._broadcast_side]
        self._moment = Moment(instruction.time.before, instruction.now)
        self._timers = NextTimers()
        self._records_in = 0
        self._snapshot: LocalSnapshot | None = None
        self._rebuilt = False

    def acknowledge(self) -> Acknowledgement:
        writers = {n.id: self._writer(n) for n in self._stage.nodes if n.kind is OperatorKind.SINK}
        try:
            return self._run(writers)
        except BaseException:
            for writer in writers.values():
                with contextlib.suppress(Exception):
                    writer.abort()
            raise

    def _run(self, writers: Mapping[int, SinkWriter]) -> Acknowledgement:
        head = self._stage.head
        emitters = {c.id: self._emitter(c) for c in self._stage.outputs}
        pushes: dict[Output, list[Any]] = {}
        for_columns: dict[Output, list[PushColumns]] = {}
        for channel in self._stage.outputs:
            output, emitter = (channel.source_node, channel.tag), emitters[channel.id]
            pushes.setdefault(output, []).append(emitter.push)
            for_columns.setdefault(output, []).append(emitter.push_columns)
        times = ChainTime(
            self._stage,
            self._moment,
            self._instruction.time,
            self._operators.generators,
            f"#{self._who.subtask}",
        )
        chain = Chain(self._stage, pushes, writers, times, for_columns)
        self._clock.mark("set up")

        def trim() -> None:
            for emitter in emitters.values():
                emitter.trim()

        state: FileRef | bytes | None = None
        if head.kind.is_keyed:
            state = self._run_keyed(chain, trim)
        else:
            self._start()
            self._run_plain(chain, times, emitters, trim)
        chain.drain()
        operator_state = self._operators.snapshot(self._instruction.snapshot_id)
        self._clock.mark("process")
        outputs = []
        for channel_id, emitter in emitters.items():
            segment = emitter.finish()
            if segment is not None:
                outputs.append(ChannelOutput(channel_id, segment))
        if self._instruction.closes_functions:
            self._operators.close()
        sinks = {i: w.stage() for i, w in writers.items()}
        self._clock.mark("write")
        self._keep()
        return Acknowledgement(
            subtask=self._who.subtask,
            name=str(self._staged),
            records_in=self._records_in,
            records_out=sum(e.count for e in emitters.values()),
            outputs=outputs,
            sinks=sinks,
            state=state,
            operator_state=operator_state,
            timers=self._timers,
            times=times.units(str(self._staged)),
            snapshot=self._snapshot,
            counters=self._operators.take_counters(),
            figures=self._operators.take_figures(),
            changed_fields=self._operators.changed_fields(),
            phases=self._clock.phases,
            home=Home(socket.gethostname(), str(self._layout.local.here()), self._rebuilt),
        )

    @property
    def _live_key(self) -> tuple[tuple[str, AttemptId], StageId, int]:
        told = self._instruction
        return (told.job, AttemptId(told.attempt)), StageId(told.stage), self._who.subtask

    def _functions_for(self, task: bytes) -> tuple[StageTask, Operators, bool]:
        live = _live.pop(self._live_key, None)
        if live is not None and live.name == self._work.previous:
            return live.task, live.operators, False
        if live is not None:
            # It is of an execution that does not count: nor does what its close() says.
            with contextlib.suppress(StepFailed):
                live.operators.close()
        loaded = load_task(task)

        def facts(node: Node) -> SubtaskFacts:
            return SubtaskFacts(
                task_name=node.name,
                index=self._who.subtask,
                parallelism=node.parallelism,
                max_parallelism=node.max_parallelism,
                attempt_number=self._who.attempt_number,
                parameters=loaded.parameters,
            )

        return loaded, Operators(loaded.stage, facts), True

    def _keep(self) -> None:
        if self._instruction.closes_functions:
            return
        key = self._live_key
        for other in list(_live):
            # What another job, or another attempt, left open when it ended.
            if other[0] != key[0] and (left := _live.pop(other, None)) is not None:
                with contextlib.suppress(StepFailed):
                    left.operators.close()
        _live[key] = _Live(str(self._staged), self._task, self._operators)

    def _start(self) -> None:
        """Have the functions ready for the first record."""
        if self._is_new:
            self._operators.open(self._work.operator_state, self._work.restored)
        self._operators.notify(self._instruction.notices)

    def _emitter(self, channel: Channel) -> Emitter:
        writer: SliceWriter
        if channel.id in self._task.inner:
            writer = self._mail.outbox.writer(channel)
        else:
            path = self._layout.channel(channel.id) / f"{self._staged}.arrow"
            writer = SegmentWriter(path, channel.consumer_parallelism)
        type_info = channel.record_type
        step = next(n.name for n in self._stage.nodes if n.id == channel.source_node)
        if channel.exchange is Exchange.HASH:
            select = callable_of(channel.partitioning.key_selector, KeySelector)
            return KeyEmitter(channel, type_info, writer, step, self._moment, select)
        if channel.exchange is Exchange.CUSTOM:
            select = callable_of(channel.partitioning.key_selector, KeySelector)
            partition = callable_of(channel.partitioning.partitioner, Partitioner)
            return CustomEmitter(channel, type_info, writer, step, self._moment, select, partition)
        return DealEmitter(channel, type_info, writer, step, self._moment, self._who.subtask)

    def _writer(self, node: Node) -> SinkWriter:
        context = WriterContext(
            subtask=self._who.subtask,
            parallelism=node.parallelism,
            staging_dir=self._layout.staging(node.uid),
            name=str(self._staged),
            type_info=node.input_type,
            job=self._layout.job,
            attempt=self._layout.attempt,
            work_dir=self._layout.durable_root / file_name(node.uid),
        )
        writer: SinkWriter = node.function.writer(context)
        return writer

    def _run_plain(
        self,
        chain: Chain,
        times: ChainTime,
        emitters: Mapping[ChannelId, Emitter],
        trim: Callable[[], None],
    ) -> None:
        head = self._stage.head
        # Nothing between what comes in and the exchange: a source's columns stay columns.
        direct = (
            len(self._stage.nodes) == 1
            and len(emitters) == 1
            and head.kind in _PASSING_ON
            and not head.has_time
        )
        if head.kind is OperatorKind.PROCESS_BATCH:
            step = chain.batch_step(head)
            for segment in (part.segment for part in self._parts(*self._element_side)):
                self._records_in += segment.rows
                step.push_columns((segment.layout, segment.columns), segment.times)
                trim()
            return
        if head.kind not in (OperatorKind.SOURCE, OperatorKind.NATIVE):
            pushes = chain.inputs(head, self._operators.broadcast)
            for part in self._parts(*self._broadcast_side, *self._element_side):
                if direct:
                    self._pass_on(part.values(), emitters)
                else:
                    self._push_part(part, pushes[part.input], trim)
            return
        push = chain.behind(head)
        is_native = head.kind is OperatorKind.NATIVE
        chunks = (
            self._native_chunks(head)
            if is_native
            else self._source_chunks(head, times, as_lists=not direct)
        )
        for chunk in chunks:
            if direct:
                self._pass_on(chunk, emitters)
            else:
                self._push_chunk(chunk, times, push, trim)
        if is_native:
            # What came in is not what came out of the plan.
            self._records_in = self._work.rows

    def _native_chunks(self, head: Node) -> Iterator[Chunk]:
        if self._batches is not None:
            yield from head.function.read_batches(self._batches)
        elif self._work.rows:
            message = f"step {head.name!r} is run by Spark, and this job does not run on Spark"
            raise InvalidJobError(message)

    def _source_chunks(self, head: Node, times: ChainTime, as_lists: bool) -> Iterator[Chunk]:
        if self._batches is not None:
            # A micro-batch without ranges is not for reading; what Spark gives then was read.
            if any(w.ranges for w in self._instruction.work):
                yield from head.function.read_batches(self._batches)
            return
        source: Source = head.function
        for split_range in self._work.ranges:
            times.enter(split_range.split)
            try:
                yield from (source.read_lists if as_lists else source.read)(split_range)
            except PenstockError:
                raise
            except Exception as error:
                fail(head.name, split_range, error)

    def _pass_on(self, chunk: Chunk, emitters: Mapping[ChannelId, Emitter]) -> None:
        self._records_in += len(chunk)
        (emitter,) = emitters.values()
        emitter.push_many(chunk)

    def _push_chunk(
        self, chunk: Chunk, times: ChainTime, push: Any, trim: Callable[[], None]
    ) -> None:
        if isinstance(chunk, TimedChunk):
            times.enter(chunk.split)
            self._push_timed(chunk.records, chunk.times, push, trim)
        else:
            assert isinstance(chunk, list)
            self._push_all(chunk, push, trim)

    def _push_part(self, part: Part, push: Any, trim: Callable[[], None]) -> None:
        if part.segment.times is None:
            self._push_all(part.values(), push, trim)
        else:
            times = part.segment.times.to_numpy().tolist()
            self._push_timed(part.values(), times, push, trim)

    def _push_timed(
        self, records: list[Any], times: list[int], push: Any, trim: Callable[[], None]
    ) -> None:
        moment = self._moment
        self._records_in += len(records)
        timed = zip(times, records, strict=True)
        for _ in range(0, len(records), STRIDE):
            for moment.timestamp, record in islice(timed, STRIDE):
                push(record)
            trim()
        moment.timestamp = NO_TIMESTAMP

    def _push_all(self, records: list[Any], push: Any, trim: Callable[[], None]) -> None:
        self._records_in += len(records)
        for start in range(0, len(records), STRIDE):
            for record in records[start : start + STRIDE]:
                push(record)
            trim()

    def _run_keyed(self, chain: Chain, trim: Callable[[], None]) -> FileRef | bytes | None:
        head = self._stage.head
        states = self._operators.states
        assert states is not None
        codec = KeyCodec(self._stage.inputs[0].partitioning.key_type, head.name)
        parts, groups = self._parts(*self._element_side), self._key_groups()
        given: KeyedInput | KeyedBatch
        if head.kind is OperatorKind.KEYED_PROCESS_BATCH:
            given = read_keyed_batch(head, parts, codec, groups, self._task.batch_mode)
        else:
            given = read_keyed(parts, codec, groups)
            if self._task.batch_mode:
                given = one_key_after_the_other(given)
        self._records_in = len(given.numbers)
        self._clock.mark("read")
        self._layout.on_hosts.make_way()
        place = self._layout.place(head.uid, self._who.subtask).here()
        # BATCH mode finishes a key before it starts the next: nothing to keep afterwards.
        backend = backend_named(
            "memory" if self._task.batch_mode else self._task.backend, head.name
        )
        ref = self._work.state or StateRef(version=0)
        store: StateStore = backend.open(place, ref)
        self._rebuilt = store.was_rebuilt
        try:
            self._take_snapshot(store)
            states.bind(store, given.routed_keys, now=self._instruction.now)
            self._start()
            self._clock.mark("open state")
            if isinstance(given, KeyedBatch):
                run_keyed_batch(head, states, given, chain.columns_behind(head))
            else:
                self._run_head(chain, states, given, trim)
            self._clock.mark("process")
            staged = None
            if not self._task.batch_mode:
                staged = self._stage_state(states, backend, place)
            # Nobody may write state from here on: it would be lost without a word.
            states.release()
        finally:
            store.close()
        return staged

    def _run_head(
        self, chain: Chain, states: KeyedStates, given: KeyedInput, trim: Callable[[], None]
    ) -> None:
        head = self._stage.head
        out, broadcast = chain.behind(head), self._operators.broadcast
        if broadcast is not None:
            self._run_broadcast_side(chain.broadcast_side(head, out, broadcast), trim)
        timers = Timers(states, self._work.timers, self._own_key_groups())
        service = KeyedTimerService(self._moment, timers)
        time = HeadTime(self._moment, self._instruction.time, timers, service)
        self._head(states, out, time, broadcast).run(given, trim)
        self._timers = timers.first()

    def _head(
        self, states: KeyedStates, out: Push, time: HeadTime, broadcast: BroadcastStates | None
    ) -> KeyedHead | WindowHead:
        node, batch_mode = self._stage.head, self._task.batch_mode
        operation = node.function
        if not isinstance(operation, WindowOperation):
            return KeyedHead(node, states, out, time, batch_mode, broadcast)
        late = operation.late_tag
        parts = WindowParts(
            name=node.name,
            operation=operation,
            states=states,
            timers=time.timers,
            moment=time.moment,
            runtime_context=self._operators.context_of(node),
            out=out,
            late_is_taken=late is not None and late.tag_id in self._stage.side_outputs(node),
        )
        return WindowHead(parts, time, batch_mode)

    def _run_broadcast_side(self, push: Any, trim: Callable[[], None]) -> None:
        part, _ = self._instruction.key_slice or (0, 1)
        # It has no key: the first part of the keys brought all of it.
        if part == 0:
            for records in self._parts(*self._broadcast_side):
                self._push_part(records, push, trim)

    def _take_snapshot(self, store: StateStore) -> None:
        if self._instruction.snapshot:
            self._clock.mark("open state")
            self._snapshot = store.snapshot(self._staged)
            self._clock.mark("snapshot")

    def _stage_state(
        self, states: KeyedStates, backend: Any, place: StatePlace
    ) -> FileRef | bytes | None:
        delta = states.take_delta()
        if not delta:
            return None
        staged: FileRef | bytes = backend.stage(place, delta, self._staged, self._instruction.batch)
        self._clock.mark("stage state")
        return staged

    def _key_groups(self) -> KeyGroupRange | None:
        if self._instruction.key_slice is None:
            return None
        part, of = self._instruction.key_slice
        mine = self._own_key_groups()
        size = len(mine)
        return KeyGroupRange(mine.start + size * part // of, mine.start + size * (part + 1) // of)

    def _own_key_groups(self) -> KeyGroupRange:
        head = self._stage.head
        return key_group_range(head.max_parallelism, head.parallelism, self._who.subtask)

    def _parts(self, *channels: Channel) -> Iterator[Part]:
        for channel in channels:
            decode = decoder_for(channel.record_type)
            for read in self._work.segments.get(channel.id, ()):
                path = self._layout.channel(channel.id) / read.name
                for part in read_slices(path, read.slices):
                    yield Part(part, decode, channel.input)
            for part in self._mail.inbox.parts(channel.id):
                yield Part(part, decode, channel.input)


class _Phases:
    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.phases: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        now = time.perf_counter()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self._last
        self._last = now
