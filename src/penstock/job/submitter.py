"""What the loops ask of an engine: run this micro-batch, do this with state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.ids import StageId
from penstock.task.messages import Acknowledgement, Instruction

W = TypeVar("W")
R = TypeVar("R")


class MicroBatchLostError(Exception):
    """The engine could not bring the micro-batch to an end; another try may."""


class Submitter(Protocol):
    """Runs micro-batches of all groups of one job, several at a time."""

    def run(self, instructions: list[Instruction], path: Path) -> list[list[Acknowledgement]]:
        """Run a micro-batch of a group: one task per subtask of each of its stages.

        Called from the group's own thread, with one instruction per stage in the order of the
        group; `path` holds them all. Returns, for each, the acknowledgements by subtask. If one of
        them tells of a failure, those of stages behind it may be missing.

        Raises:
            MicroBatchLostError: the engine gave up; nothing that tasks staged counts.
        """
        ...

    def each(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        """Call a function for each subtask's work, beside the running micro-batches.

        Each runs where that subtask's micro-batches do, with its work and the task attempt's id.

        Raises:
            MicroBatchLostError: the engine gave up.
            PenstockError: what the function raised, if it was one.
        """
        ...

    def cancel(self) -> None:
        """Stop what is running, now."""
        ...

    def close(self) -> None:
        """Let the engine forget the job; called once, after its end."""
        ...
