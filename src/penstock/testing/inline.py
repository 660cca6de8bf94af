"""Runs micro-batches without Spark: all subtasks run one after the other in the calling thread.

For tests of functions and of the job's loops. It runs the same subtask code on the same files and
shuffle records as Spark does, but in a single process, where no task is lost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from penstock.common import pickling
from penstock.common.configuration import Configuration
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.plan import Plan
from penstock.graph.regions import PipelinedRegion, slot_assignment
from penstock.ids import StageId
from penstock.job.launch import launch
from penstock.job.launched_job import LaunchedJob
from penstock.job.submitter import R, W
from penstock.task.messages import Acknowledgement, Instruction, decode_instructions, encode
from penstock.task.shuffle.level import ShuffleLevel, acknowledgements_by_stage


class InlineSubmitter:
    """Runs micro-batches in this process."""

    def __init__(self, regions: tuple[PipelinedRegion, ...], tasks: dict[StageId, bytes]) -> None:
        self._slots = {region.head.id: slot_assignment(region) for region in regions}
        self._tasks = tasks
        self._task_attempts = itertools.count()
        self.submitted = 0
        """How many micro-batches were run."""

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        """Run all subtasks; data between driver and tasks is encoded as for Spark."""
        self.submitted += 1
        read = decode_instructions(encode(instructions))
        slots = self._slots[StageId(read[0].stage)]
        outgoing: list[tuple[int, bytes]] = []
        for number in range(len(slots.levels)):
            incoming: dict[int, list[bytes]] = {}
            # A shuffle does not keep order, so tests should notice code that relies on one.
            for partition, data in reversed(outgoing):
                incoming.setdefault(partition, []).append(data)
            level, tasks = ShuffleLevel(slots, number, read), self._tasks.__getitem__
            outgoing = []
            for partition in range(slots.width(number)):
                attempt = next(self._task_attempts), 0
                outgoing += level.run(partition, attempt, tasks, incoming.get(partition, []))
        return acknowledgements_by_stage((data for _, data in outgoing), slots)

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        """Call the function in this thread; function and work are pickled as for Spark."""
        results = []
        for one in work:
            call, copy = pickling.loads(pickling.dumps((function, one)))
            results.append(call(copy, next(self._task_attempts)))
        return results

    def cancel(self) -> None:
        """Do nothing: a running micro-batch ends by itself."""

    def close(self) -> None:
        """Do nothing."""


def run_inline(
    env: StreamExecutionEnvironment, clock: Callable[[], float] = time.time
) -> StreamExecutionEnvironment:
    """Make an environment run its jobs in this process, without Spark.

    ``clock`` returns the processing time; a `ManualClock` lets the test control it.
    """

    def launch_inline(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
        return launch(
            plan,
            configuration,
            batch_mode,
            lambda regions, _job, tasks, _stay: InlineSubmitter(regions, tasks),
            clock=clock,
        )

    env._launcher = launch_inline
    return env
