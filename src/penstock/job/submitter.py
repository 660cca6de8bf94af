"""The contract of an engine that runs micro-batches and state operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from penstock.ids import StageId
from penstock.task.messages import Acknowledgement, Instruction

W = TypeVar("W")
R = TypeVar("R")


class MicroBatchLostError(Exception):
    """The engine could not complete the micro-batch; another try may succeed."""


class Submitter(Protocol):
    """Runs the micro-batches of all pipelined regions of one attempt, several at a time."""

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        """Run a micro-batch of a region: one task per subtask of each of its stages.

        Called from the region's own thread, with one instruction per stage in topological order.
        Returns, for each, the acknowledgements by subtask. If one of them reports a failure, those
        of downstream stages may be missing.

        Raises:
            MicroBatchLostError: the engine gave up; nothing that tasks staged counts.
        """
        ...

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        """Call a function for each subtask's work, concurrently with running micro-batches.

        Each call runs on the subtask's host, with its work and the task attempt's id.

        Raises:
            MicroBatchLostError: the engine gave up.
            PenstockError: what the function raised, if it was one.
        """
        ...

    def cancel(self) -> None:
        """Cancel everything that is running."""
        ...

    def close(self) -> None:
        """Release the engine's resources; called once, after the end of the attempt."""
        ...
