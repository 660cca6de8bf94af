"""Runs a micro-batch of several stages as one Spark job, with Spark's shuffle between them.

The job is built for each try: Spark would not run a finished shuffle again, and the job would read
the shuffle records of the try before. The shuffle files are removed when the job has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import RDD, Broadcast
from pyspark.serializers import pack_long
from pyspark.sql import DataFrame

from penstock.graph.regions import PipelinedRegion, SlotAssignment, slot_assignment
from penstock.ids import StageId
from penstock.spark.submit.anchors import Anchors, drain, map_to_bytes
from penstock.spark.submit.input_frames import Frame, ReusableFrame
from penstock.spark.submit.instruction_property import (
    InstructionProperty,
    enter_task,
    read_instructions,
)
from penstock.task.messages import (
    Acknowledgement,
    Instruction,
    encode,
    has_input,
)
from penstock.task.shuffle.level import ShuffleLevel, acknowledgements_by_stage


class RegionJob:
    """Runs a pipelined region of several stages; used by the region's thread."""

    def __init__(
        self,
        region: PipelinedRegion,
        anchors: Anchors,
        tasks: dict[StageId, Broadcast[bytes]],
        frame: Frame | None,
    ) -> None:
        self._slots = slot_assignment(region)
        self._frame = frame
        self._property = InstructionProperty(anchors.context)
        self._reusable: RDD[bytes] | None = None
        """The first level over a DataFrame that is the same for all micro-batches."""
        self._tasks = tasks
        self._anchors = anchors
        self._level_anchors = [
            anchors.for_shuffle(self._slots.width(level)) for level in range(len(region.levels))
        ]

    def anchor(self, stage: StageId) -> tuple[RDD[bytes], int]:
        """Return the RDD over which a stage's level runs, and the stage's first partition in it."""
        first = self._slots.slot_of(stage, 0)
        return self._level_anchors[first.level].rdd, first.partition

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        """Run one try of a micro-batch; return the acknowledgements of each stage."""
        rdd = self._first_level(instructions)
        shuffles = []
        for level, anchor in enumerate(self._level_anchors[1:], 1):
            incoming, shuffle = self._anchors.shuffle(rdd, anchor)
            shuffles.append(shuffle)
            rdd = map_to_bytes(incoming, self._runner(level, instructions))
        try:
            return acknowledgements_by_stage(rdd.collect(), self._slots)
        finally:
            self._anchors.remove_shuffles(shuffles)

    def _first_level(self, instructions: list[Instruction]) -> RDD[bytes]:
        runner, work = self._runner(0, instructions), instructions[0].work
        # Without input a micro-batch only fires timers and notifies functions.
        if self._frame is None or not has_input(work):
            return map_to_bytes(self._level_anchors[0].rdd, runner)
        if not isinstance(self._frame, ReusableFrame):
            return _over_frame(self._frame(work), runner)
        # A plan that is run again has what its tasks need in a property of the job.
        encoded = encode(self._of_level(0, instructions))
        if not self._property.set(encoded):
            return _over_frame(self._frame.knowing(encoded), runner)
        if self._reusable is None:
            self._reusable = _over_frame(self._frame.df, runner.for_any_micro_batch())
        return self._reusable

    def _runner(self, level: int, instructions: list[Instruction]) -> _LevelRunner:
        stages = [stage for stage, _ in self._slots.levels[level]]
        return _LevelRunner(
            self._slots,
            level,
            encode(self._of_level(level, instructions)),
            {stage: self._tasks[stage] for stage in stages},
            sys.path,
        )

    def _of_level(self, level: int, instructions: list[Instruction]) -> list[Instruction]:
        stages = {stage for stage, _ in self._slots.levels[level]}
        return [i for i in instructions if i.stage in stages]


class _LevelRunner:
    """Runs the subtasks of one shuffle level in Spark tasks; pickled for each try."""

    def __init__(
        self,
        slots: SlotAssignment,
        level: int,
        instructions: bytes | None,
        tasks: dict[StageId, Broadcast[bytes]],
        path: Sequence[str],
    ) -> None:
        self._slots = slots
        self._level = level
        self._instructions = instructions
        self._tasks = tasks
        self._path = path

    def for_any_micro_batch(self) -> _LevelRunner:
        """Return the same for a job that is reused, whose tasks read the job's property."""
        return _LevelRunner(self._slots, self._level, None, self._tasks, self._path)

    def __call__(self, index: int, incoming: Iterable[bytes]) -> Iterator[bytes]:
        """Run the subtask of a partition over the shuffle records that arrived there."""
        is_last = self._level + 1 == len(self._slots.levels)
        for partition, record in self._run(incoming, None):
            if not is_last:
                yield pack_long(partition)
            yield record

    def run_over_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the operator chain over a partition of a DataFrame."""
        for partition, record in self._run((), batches):
            yield pa.record_batch(
                [pa.array([partition], pa.int64()), pa.array([record], pa.binary())],
                names=["partition", "record"],
            )

    def _run(
        self, incoming: Iterable[bytes], batches: Iterator[pa.RecordBatch] | None
    ) -> Iterator[tuple[int, bytes]]:
        context = enter_task(self._path)
        instructions = read_instructions(context, self._instructions)
        level = ShuffleLevel(self._slots, self._level, instructions)
        attempt = context.taskAttemptId(), context.attemptNumber()
        yield from level.run(context.partitionId(), attempt, self._task, incoming, batches)
        drain(incoming)

    def _task(self, stage: StageId) -> bytes:
        task: bytes = self._tasks[stage].value
        return task


def _over_frame(frame: DataFrame, runner: _LevelRunner) -> RDD[bytes]:
    records = frame.mapInArrow(runner.run_over_batches, "partition long, record binary")
    return map_to_bytes(records.rdd, _addressed)


def _addressed(_: int, rows: Iterable[Any]) -> Iterator[bytes]:
    for row in rows:
        yield pack_long(row.partition)
        yield bytes(row.record)
