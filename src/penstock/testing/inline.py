"""Micro-batches without Spark: every subtask runs in the calling thread, one after the other.

For tests of functions and of the loops. It runs the same subtask code on the same files and the
same parcels as Spark does; what it cannot show is another process, another host, or a lost task.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

from penstock.common import pickling
from penstock.common.configuration import Configuration
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.groups import Group
from penstock.graph.plan import Plan
from penstock.graph.seating import Seating, seating
from penstock.ids import StageId
from penstock.job.launch import LaunchedJob, launch
from penstock.job.submitter import R, W
from penstock.task.level import Level, by_member
from penstock.task.messages import Acknowledgement, Instruction, decode_instructions


class InlineSubmitter:
    """Runs micro-batches in this process."""

    def __init__(self, groups: tuple[Group, ...], tasks: dict[StageId, bytes]) -> None:
        self._seatings = {group.head.id: seating(group) for group in groups}
        self._tasks = tasks
        self._task_attempts = itertools.count()
        self.submitted = 0
        """How many micro-batches were run."""

    def run(self, instructions: list[Instruction], path: Path) -> list[list[Acknowledgement]]:
        """Run all subtasks; what passes between driver and task is encoded as it would be."""
        self.submitted += 1
        read = decode_instructions(path.read_bytes())
        seats = self._seatings[StageId(read[0].stage)]
        outgoing: list[tuple[int, bytes]] = []
        for number in range(len(seats.levels)):
            incoming: dict[int, list[bytes]] = {}
            # A shuffle keeps no order: whoever relies on one shall see it here.
            for partition, data in reversed(outgoing):
                incoming.setdefault(partition, []).append(data)
            outgoing = self._run_level(Level(seats, number, read), seats, incoming)
        return by_member((data for _, data in outgoing), seats)

    def _run_level(
        self, level: Level, seats: Seating, incoming: dict[int, list[bytes]]
    ) -> list[tuple[int, bytes]]:
        return [
            parcel
            for partition in range(seats.width(level.number))
            for parcel in level.run(
                partition,
                (next(self._task_attempts), 0),
                self._tasks.__getitem__,
                incoming.get(partition, []),
            )
        ]

    def each(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        """Call the function right here; what passes is pickled as it would be."""
        made = []
        for one in work:
            call, given = pickling.loads(pickling.dumps((function, one)))
            made.append(call(given, next(self._task_attempts)))
        return made

    def cancel(self) -> None:
        """Do nothing: a running micro-batch ends soon."""

    def close(self) -> None:
        """Do nothing."""


def run_inline(
    env: StreamExecutionEnvironment, clock: Callable[[], float] = time.time
) -> StreamExecutionEnvironment:
    """Let an environment run its jobs in this process, without Spark.

    ``clock`` tells processing time; with a `ManualClock` it passes when the test says so.
    """

    def launch_inline(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
        return launch(
            plan,
            configuration,
            batch_mode,
            lambda groups, _job, tasks: InlineSubmitter(groups, tasks),
            clock=clock,
        )

    env._launcher = launch_inline
    return env
