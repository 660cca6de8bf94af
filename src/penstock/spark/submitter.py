"""Micro-batches as Spark jobs over cached anchors.

A stage that runs alone has one RDD, built once: the anchor with `run_subtask` mapped over it. A
micro-batch is one more run of that RDD; which one it is travels with the job (`spark.told`).
Stages that run together are a `GroupJob`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import RDD, Broadcast, TaskContext
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import PenstockError
from penstock.graph.groups import Group
from penstock.ids import StageId
from penstock.job.submitter import MicroBatchLostError, R, W
from penstock.spark.anchors import Anchors, drain
from penstock.spark.dataframe_source import DataFrameSource
from penstock.spark.first_cause import first_cause
from penstock.spark.frames import Frame, LastingFrame, frame_of
from penstock.spark.group_job import GroupJob
from penstock.spark.told import tell, told_instructions
from penstock.task.failure import pack, unpack
from penstock.task.level import by_member
from penstock.task.messages import (
    Acknowledgement,
    Instruction,
    decode_acknowledgement,
    encode,
    has_input,
)
from penstock.task.subtask import TaskAttempt, run_subtask

logger = logging.getLogger("penstock.spark")


class SparkSubmitter:
    """Runs the micro-batches of one job on a SparkContext."""

    def __init__(
        self,
        session: SparkSession,
        job_id: str,
        groups: tuple[Group, ...],
        tasks: dict[StageId, bytes],
    ) -> None:
        context = session.sparkContext
        self._context = context
        self._job_id = job_id
        self._broadcasts = {stage: context.broadcast(task) for stage, task in tasks.items()}
        self._anchors = Anchors(context)
        self._jobs: dict[StageId, Callable[[], list[Any]]] = {}
        """By the stage that is alone in its group."""
        self._frame_jobs: dict[StageId, Callable[[Instruction], list[Any]]] = {}
        """Those whose input Spark reads."""
        self._group_jobs: dict[StageId, GroupJob] = {}
        """By each stage of the group."""
        # A DataFrame may have fewer partitions than its stage has subtasks.
        self._sparse = {
            g.head.id for g in groups if isinstance(g.head.head.function, DataFrameSource)
        }
        self._groups = {group.head.id: group for group in groups}
        self._generations: dict[StageId, int] = {}
        """Of the anchors that a group uses, by its first stage."""
        self._frames = {
            group.head.id: frame_of(session, group, self._broadcasts[group.head.id])
            for group in groups
        }
        self._thread = threading.local()
        self._enter("anchors")
        for group in groups:
            self._prepare(group)

    def run(self, instructions: list[Instruction], path: Path) -> list[list[Acknowledgement]]:
        """Run one micro-batch in the pool of the group's first stage; see `Submitter`."""
        head = StageId(instructions[0].stage)
        self._enter(f"stage-{head}")
        self._anchors.follow_executors()
        if self._generations[head] != self._anchors.generation:
            self._prepare(self._groups[head])
        tell(self._context, path)
        if head in self._group_jobs:
            job = self._group_jobs[head]
            rows = _collect(lambda: job.run(instructions))
            acks = by_member(rows, job.seating)
        else:
            # Without something to read, functions are told things.
            if has_input(instructions[0].work) and head in self._frame_jobs:
                frame_job = self._frame_jobs[head]
                rows = _collect(lambda: frame_job(instructions[0]))
            else:
                rows = _collect(self._jobs[head])
            acks = [[decode_acknowledgement(row) for row in rows]]
        return checked(acks, instructions, self._sparse)

    def each(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        """Call a function per subtask in a job of its own; see `Submitter`."""
        if not work:
            return []
        # What cleans up behind the job must run though the job was cancelled.
        self._enter(f"{purpose}-{stage}", outlives=purpose == "leave")
        anchor: RDD[Any]
        if stage in self._group_jobs:
            anchor, first = self._group_jobs[stage].anchor(stage)
        else:
            anchor, first = self._anchors.plain(len(work)), 0

        def call(index: int, anchor: Iterable[object]) -> Iterator[tuple[R | None, bytes | None]]:
            drain(anchor)
            task = TaskContext.get()
            assert task is not None
            try:
                yield function(work[index - first], task.taskAttemptId()), None
            except PenstockError as error:
                # A retry would not change it; the driver shall see it as it is.
                yield None, pack(error)

        job = anchor.mapPartitionsWithIndex(call)
        mine = list(range(first, first + len(work)))
        made = _collect(lambda: list(self._context.runJob(job, iter, mine)))
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
        self._anchors.close()
        with contextlib.suppress(Exception):
            for broadcast in self._broadcasts.values():
                broadcast.destroy()

    def _prepare(self, group: Group) -> None:
        self._generations[group.head.id] = self._anchors.generation
        if len(group.stages) > 1:
            frame = self._frames[group.head.id]
            job = GroupJob(group, self._anchors, self._broadcasts, frame)
            self._group_jobs.update((stage.id, job) for stage in group.stages)
            return
        stage = group.head
        runner = _SubtaskRunner(self._broadcasts[stage.id], sys.path)
        frame = self._frames[stage.id]
        if isinstance(frame, LastingFrame):
            acks = _acknowledged(frame.df, runner)
            self._frame_jobs[stage.id] = lambda _: _rows(acks)
        elif frame is not None:
            self._frame_jobs[stage.id] = partial(_read_and_run, frame, runner)
        anchor = self._anchors.plain(stage.parallelism)
        self._jobs[stage.id] = anchor.mapPartitions(runner).collect

    def _enter(self, pool: str, *, outlives: bool = False) -> None:
        """Let what this thread submits next be part of the job, and of a pool.

        With `outlives` it is not cancelled with the job.
        """
        if getattr(self._thread, "pool", None) != pool:
            # Local properties stay with the thread: once is enough.
            group = f"{self._job_id}-{pool}" if outlives else self._job_id
            self._context.setJobGroup(group, f"penstock {pool}", interruptOnCancel=True)
            self._context.setLocalProperty("spark.scheduler.pool", pool)
            self._thread.pool = pool


def _read_and_run(frame: Frame, runner: _SubtaskRunner, instruction: Instruction) -> list[bytes]:
    return _rows(_acknowledged(frame(instruction.work), runner))


def _acknowledged(frame: DataFrame, runner: _SubtaskRunner) -> DataFrame:
    return frame.mapInArrow(runner.of_batches, "ack binary")


def _rows(acks: DataFrame) -> list[bytes]:
    return [bytes(row.ack) for row in acks.collect()]


def _collect(job: Callable[[], list[Any]]) -> list[Any]:
    try:
        return job()
    except PenstockError:
        raise
    except Exception as error:
        raise MicroBatchLostError(first_cause(str(error))) from error


class _SubtaskRunner:
    """What Spark calls in its tasks; pickled once per stage."""

    def __init__(self, task: Broadcast[bytes], path: list[str]) -> None:
        self._task = task
        self._path = path

    def __call__(self, anchor: Iterable[int]) -> Iterator[bytes]:
        """Run the subtask that belongs to a partition of the anchor."""
        drain(anchor)
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
        (instruction,) = told_instructions(context)
        who = TaskAttempt(context.partitionId(), context.taskAttemptId(), context.attemptNumber())
        return instruction, who


def checked(
    acks: list[list[Acknowledgement]], instructions: list[Instruction], sparse: Collection[int]
) -> list[list[Acknowledgement]]:
    """Return one acknowledgement per subtask of each stage; as they are if one tells of a failure.

    A stage in `sparse` may have run fewer tasks than it has subtasks.

    Raises:
        MicroBatchLostError: there are too few, or too many.
    """
    if any(a.failure is not None for mine in acks for a in mine):
        return acks
    whole = []
    for mine, told in zip(acks, instructions, strict=True):
        by_subtask = {a.subtask: a for a in mine}
        expected = range(len(told.work))
        missing = set(expected) - by_subtask.keys()
        if len(mine) + len(missing) != len(expected) or (missing and told.stage not in sparse):
            message = (
                f"stage {told.stage}, micro-batch {told.batch}: {len(mine)} acknowledgements, "
                f"of subtasks {sorted(by_subtask)}"
            )
            raise MicroBatchLostError(message)
        whole.append([by_subtask.get(i) or Acknowledgement(i, f"none-{i}") for i in expected])
    return whole
