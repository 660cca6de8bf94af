"""A micro-batch of several stages as one Spark job, with Spark's shuffle between them.

The job is built anew for each try: a shuffle that is there already would not run again, and its
parcels would be those of the try before. What is shuffled is removed when the job has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import RDD, Broadcast, TaskContext
from pyspark.serializers import pack_long
from pyspark.sql import DataFrame

from penstock.graph.groups import Group
from penstock.graph.seating import Seating, seating
from penstock.ids import StageId
from penstock.spark.anchors import Anchors, drain, raw
from penstock.spark.frames import Frame, LastingFrame
from penstock.spark.told import told_instructions
from penstock.task.level import Level
from penstock.task.messages import (
    Instruction,
    SubtaskWork,
    decode_instructions,
    encode,
    has_input,
)


class GroupJob:
    """Runs the micro-batches of one group; used by the group's thread."""

    def __init__(
        self,
        group: Group,
        anchors: Anchors,
        tasks: dict[StageId, Broadcast[bytes]],
        frame: Frame | None,
    ) -> None:
        self.seating = seating(group)
        self._frame = frame
        self._lasting: RDD[bytes] | None = None
        """The first level over a frame that is the same for all micro-batches."""
        self._tasks = {s.id: tasks[s.id] for s in group.stages}
        self._anchors = anchors
        self._meetings = [
            anchors.meeting(self.seating.width(level)) for level in range(len(group.levels))
        ]

    def anchor(self, stage: StageId) -> tuple[RDD[bytes], int]:
        """Return the RDD over which a stage's level runs, and the stage's first partition in it."""
        first = self.seating.seat(stage, 0)
        return self._meetings[first.level].rdd, first.partition

    def run(self, instructions: list[Instruction]) -> list[bytes]:
        """Run one try of a micro-batch; return the parcels with acknowledgements."""
        rdd = self._first(self._runner(0, instructions), instructions[0].work)
        shuffles = []
        for level, anchor in enumerate(self._meetings[1:], 1):
            given, shuffle = self._anchors.meet(rdd, anchor)
            shuffles.append(shuffle)
            rdd = raw(given, self._runner(level, instructions))
        try:
            return list(rdd.collect())
        finally:
            self._anchors.forget(shuffles)

    def _first(self, runner: _LevelRunner, work: Sequence[SubtaskWork]) -> RDD[bytes]:
        # Without something to read, functions are told things.
        if self._frame is None or not has_input(work):
            return raw(self._meetings[0].rdd, runner)
        if not isinstance(self._frame, LastingFrame):
            return _parcels(self._frame(work), runner)
        if self._lasting is None:
            self._lasting = _parcels(self._frame.df, runner.of_any_micro_batch())
        return self._lasting

    def _runner(self, level: int, instructions: list[Instruction]) -> _LevelRunner:
        mine = [stage for stage, _ in self.seating.levels[level]]
        return _LevelRunner(
            self.seating,
            level,
            encode([i for i in instructions if i.stage in mine]),
            {stage: self._tasks[stage] for stage in mine},
            sys.path,
        )


class _LevelRunner:
    """What Spark calls in the tasks of one level; pickled for each try."""

    def __init__(
        self,
        seats: Seating,
        level: int,
        instructions: bytes | None,
        tasks: dict[StageId, Broadcast[bytes]],
        path: list[str],
    ) -> None:
        self._seats = seats
        self._level = level
        self._instructions = instructions
        self._tasks = tasks
        self._path = path

    def of_any_micro_batch(self) -> _LevelRunner:
        """Return the same for a job that says in another way which micro-batch it is."""
        return _LevelRunner(self._seats, self._level, None, self._tasks, self._path)

    def __call__(self, index: int, incoming: Iterable[bytes]) -> Iterator[bytes]:
        """Run the subtask of a partition over the parcels that came to it."""
        is_last = self._level + 1 == len(self._seats.levels)
        for partition, parcel in self._run(incoming, None):
            if not is_last:
                yield pack_long(partition)
            yield parcel

    def of_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the chain behind a DataFrame over one of its partitions."""
        for partition, parcel in self._run((), batches):
            yield pa.record_batch(
                [pa.array([partition], pa.int64()), pa.array([parcel], pa.binary())],
                names=["partition", "parcel"],
            )

    def _run(
        self, incoming: Iterable[bytes], batches: Iterator[pa.RecordBatch] | None
    ) -> Iterator[tuple[int, bytes]]:
        # The user's own modules are found where the driver found them.
        sys.path.extend(p for p in self._path if p not in sys.path)
        context = TaskContext.get()
        assert context is not None
        if self._instructions is None:
            instructions = told_instructions(context)
        else:
            instructions = decode_instructions(self._instructions)
        level = Level(self._seats, self._level, instructions)
        attempt = context.taskAttemptId(), context.attemptNumber()
        yield from level.run(context.partitionId(), attempt, self._task, incoming, batches)
        drain(incoming)

    def _task(self, stage: StageId) -> bytes:
        task: bytes = self._tasks[stage].value
        return task


def _parcels(frame: DataFrame, runner: _LevelRunner) -> RDD[bytes]:
    parcels = frame.mapInArrow(runner.of_batches, "partition long, parcel binary")
    return raw(parcels.rdd, _addressed)


def _addressed(_: int, rows: Iterable[Any]) -> Iterator[bytes]:
    for row in rows:
        yield pack_long(row.partition)
        yield bytes(row.parcel)
