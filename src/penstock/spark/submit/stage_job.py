"""Runs the micro-batches of a single stage as Spark jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame

from penstock.graph.plan import Stage
from penstock.spark.submit.anchors import Anchors, drain
from penstock.spark.submit.input_frames import Frame, ReusableFrame
from penstock.spark.submit.instruction_property import (
    InstructionProperty,
    enter_task,
    read_instructions,
)
from penstock.task.messages import (
    Acknowledgement,
    Instruction,
    decode_acknowledgement,
    encode,
    has_input,
)
from penstock.task.subtask import TaskAttempt, run_subtask


class StageJob:
    """Runs a stage that is a region by itself; used by the region's thread.

    What can be planned is planned once: an RDD that maps `run_subtask` over the anchor, and the
    DataFrame if all micro-batches read the same one. A micro-batch is one more run of it, if its
    instructions are small.
    """

    def __init__(
        self, stage: Stage, anchors: Anchors, task: Broadcast[bytes], frame: Frame | None
    ) -> None:
        self._property = InstructionProperty(anchors.context)
        self._anchor = anchors.plain(stage.parallelism)
        self._runner = _SubtaskRunner(task, sys.path)
        self._over_anchor = self._anchor.mapPartitions(self._runner)
        self._frame = frame
        self._reusable: DataFrame | None = None
        if isinstance(frame, ReusableFrame):
            self._reusable = _over_frame(frame.df, self._runner)

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        """Run one try of a micro-batch; return its acknowledgements in any order."""
        (instruction,) = instructions
        encoded = encode(instructions)
        is_reused = self._property.set(encoded)
        runner = self._runner if is_reused else self._runner.knowing(encoded)
        if self._frame is None or not has_input(instruction.work):
            # Without input a micro-batch only fires timers and notifies functions.
            over_anchor = self._over_anchor if is_reused else self._anchor.mapPartitions(runner)
            rows = over_anchor.collect()
        else:
            rows = [bytes(row.ack) for row in self._read(instruction, runner, encoded).collect()]
        return [[decode_acknowledgement(row) for row in rows]]

    def _read(self, instruction: Instruction, runner: _SubtaskRunner, encoded: bytes) -> DataFrame:
        assert self._frame is not None
        if not isinstance(self._frame, ReusableFrame):
            return _over_frame(self._frame(instruction.work), runner)
        if self._reusable is not None and runner is self._runner:
            return self._reusable
        return _over_frame(self._frame.knowing(encoded), runner)


def _over_frame(frame: DataFrame, runner: _SubtaskRunner) -> DataFrame:
    return frame.mapInArrow(runner.run_over_batches, "ack binary")


class _SubtaskRunner:
    """Runs a subtask in a Spark task; pickled once per stage, or for large instructions."""

    def __init__(
        self, task: Broadcast[bytes], path: Sequence[str], instructions: bytes | None = None
    ) -> None:
        self._task = task
        self._path = path
        self._instructions = instructions

    def knowing(self, instructions: bytes) -> _SubtaskRunner:
        """Return the same for one micro-batch."""
        return _SubtaskRunner(self._task, self._path, instructions)

    def __call__(self, anchor: Iterable[int]) -> Iterator[bytes]:
        """Run the subtask of a partition of the anchor."""
        drain(anchor)
        yield self._run()

    def run_over_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the operator chain over a partition of a DataFrame."""
        yield pa.record_batch([pa.array([self._run(batches)], pa.binary())], names=["ack"])

    def _run(self, batches: Iterator[pa.RecordBatch] | None = None) -> bytes:
        context = enter_task(self._path)
        (instruction,) = read_instructions(context, self._instructions)
        task_attempt = TaskAttempt(
            context.partitionId(), context.taskAttemptId(), context.attemptNumber()
        )
        return encode(run_subtask(self._task.value, instruction, task_attempt, batches))
