"""Micro-batches as narrow Spark jobs over a cached anchor.

Each stage has one RDD, built once: the anchor with `run_subtask` mapped over it. A
micro-batch is one more run of that RDD; which one it is travels as a local property of the
job, bound to it by Spark, so a retried task can only ever read its own instruction.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import RDD, Broadcast, TaskContext
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.graph.plan import Stage
from penstock.ids import StageId
from penstock.job.submitter import MicroBatchLostError, R, W
from penstock.spark.dataframe_source import DataFrameSource
from penstock.task.failure import pack, unpack
from penstock.task.messages import (
    Acknowledgement,
    Instruction,
    decode_acknowledgement,
    decode_instructions,
    encode,
)
from penstock.task.subtask import TaskAttempt, run_subtask

logger = logging.getLogger("penstock.spark")

_INSTRUCTION = "penstock.instruction"


class SparkSubmitter:
    """Runs the micro-batches of one job on a SparkContext."""

    def __init__(self, session: SparkSession, job_id: str, tasks: dict[StageId, bytes]) -> None:
        context = session.sparkContext
        self._context = context
        self._job_id = job_id
        self._broadcasts = {stage: context.broadcast(task) for stage, task in tasks.items()}
        self._anchors: dict[int, RDD[int]] = {}
        self._jobs: dict[StageId, Callable[[], list[Any]]] = {}
        self._lock = threading.Lock()
        self._thread = threading.local()

    def prepare(self, stage: Stage) -> None:
        """Build the stage's RDD; called once per stage before its loop starts."""
        runner = _SubtaskRunner(self._broadcasts[stage.id], sys.path)
        source = stage.head.function
        if isinstance(source, DataFrameSource):
            assert source.df is not None
            frame = source.df.coalesce(stage.parallelism).mapInArrow(
                runner.of_batches, "ack binary"
            )
            self._jobs[stage.id] = lambda: [bytes(row.ack) for row in frame.collect()]
        else:
            self._jobs[stage.id] = self._anchor(stage.parallelism).mapPartitions(runner).collect

    def run(self, instructions: list[Instruction], path: Path) -> list[list[Acknowledgement]]:
        """Run one micro-batch in the stage's pool; see `Submitter`."""
        (instruction,) = instructions
        stage = StageId(instruction.stage)
        self._context.setLocalProperty(_INSTRUCTION, str(path))
        rows = self._collect(self._jobs[stage], f"stage-{stage}")
        return [_by_subtask(rows, len(instruction.work), str(path))]

    def each(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        """Call a function per subtask in a job of its own; see `Submitter`."""
        if not work:
            return []

        def call(index: int, anchor: Iterable[int]) -> Iterator[tuple[R | None, bytes | None]]:
            _drain(anchor)
            task = TaskContext.get()
            assert task is not None
            try:
                yield function(work[index], task.taskAttemptId()), None
            except PenstockError as error:
                # A retry would not change it; the driver shall see it as it is.
                yield None, pack(error)

        job = self._anchor(len(work)).mapPartitionsWithIndex(call)
        made = self._collect(job.collect, f"{purpose}-{stage}")
        for _, failure in made:
            if failure is not None:
                raise unpack(failure)
        return [result for result, _ in made]

    def cancel(self) -> None:
        """Cancel every running job of this penstock job."""
        with contextlib.suppress(Exception):
            # The group is this job's alone: what a loop is about to submit must not run either.
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._job_id)

    def close(self) -> None:
        """Let Spark forget the job."""
        with contextlib.suppress(Exception):
            for anchor in self._anchors.values():
                anchor.unpersist()
            for broadcast in self._broadcasts.values():
                broadcast.destroy()

    def _anchor(self, parallelism: int) -> RDD[int]:
        with self._lock:
            if parallelism not in self._anchors:
                anchor = self._context.parallelize(range(parallelism), parallelism).cache()
                anchor.count()
                self._anchors[parallelism] = anchor
            return self._anchors[parallelism]

    def _collect(self, job: Callable[[], list[Any]], pool: str) -> list[Any]:
        context = self._context
        if getattr(self._thread, "pool", None) != pool:
            # Local properties stay with the thread: once is enough.
            context.setJobGroup(self._job_id, f"penstock {pool}", interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", pool)
            self._thread.pool = pool
        try:
            return job()
        except Exception as error:
            raise MicroBatchLostError(first_cause(str(error))) from error


class _SubtaskRunner:
    """What Spark calls in its tasks; pickled once per stage."""

    def __init__(self, task: Broadcast[bytes], path: list[str]) -> None:
        self._task = task
        self._path = path

    def __call__(self, anchor: Iterable[int]) -> Iterator[bytes]:
        """Run the subtask that belongs to a partition of the anchor."""
        _drain(anchor)
        instruction, who = self._enter()
        yield encode(run_subtask(self._task.value, instruction, who))

    def of_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the chain behind a DataFrame over one of its partitions."""
        instruction, who = self._enter()
        ack = encode(run_subtask(self._task.value, instruction, who, batches))
        yield pa.record_batch([pa.array([ack], pa.binary())], names=["ack"])

    def _enter(self) -> tuple[Instruction, TaskAttempt]:
        # The user's own modules are found where the driver found them.
        sys.path.extend(p for p in self._path if p not in sys.path)
        context = TaskContext.get()
        assert context is not None
        path = context.getLocalProperty(_INSTRUCTION)
        assert path is not None
        (instruction,) = decode_instructions(Path(path).read_bytes())
        who = TaskAttempt(context.partitionId(), context.taskAttemptId(), context.attemptNumber())
        return instruction, who


def _drain(anchor: Iterable[int]) -> None:
    """Read what Spark sends: a worker that leaves input unread is thrown away after its task."""
    for _ in anchor:
        pass


def _by_subtask(rows: Sequence[bytes], expected: int, path: str) -> list[Acknowledgement]:
    acks = {a.subtask: a for a in map(decode_acknowledgement, rows)}
    if len(acks) != len(rows) or not acks.keys() <= set(range(expected)):
        message = f"{path}: {len(rows)} acknowledgements of subtasks {sorted(acks)}"
        raise MicroBatchLostError(message)
    # A DataFrame may have fewer partitions than its stage has subtasks.
    return [acks.get(i) or Acknowledgement(i, f"none-{i}") for i in range(expected)]


_PYTHON_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?P<frames>.*?)(?:\n\s*(?:at |Driver stacktrace)|\Z)",
    re.DOTALL,
)


def first_cause(report: str) -> str:
    """Return why, out of Spark's report of a failed job, without its stack traces."""
    traceback = _PYTHON_TRACEBACK.search(report)
    if traceback is not None:
        said = [line for line in traceback["frames"].splitlines() if re.match(r"[A-Za-z]", line)]
        if said:
            return said[-1].strip()
    for line in report.splitlines():
        if "Python worker" in line or "ExecutorLost" in line or "Lost task" in line:
            return line.strip()
    return report.splitlines()[0] if report else "no reason given"
