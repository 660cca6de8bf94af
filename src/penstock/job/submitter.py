"""The one thing the loops ask of an engine: run this micro-batch."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from penstock.ids import StageId
from penstock.state.backends.base import StagedName, StatePlace, StateRef
from penstock.task.messages import Acknowledgement, Instruction


class MicroBatchLostError(Exception):
    """The engine could not bring the micro-batch to an end; another try may."""


class Submitter(Protocol):
    """Runs micro-batches of all stages of one job, several at a time."""

    def run(self, instruction: Instruction, path: Path) -> list[Acknowledgement]:
        """Run one task per subtask and return their acknowledgements by subtask.

        Called from the stage's own thread. `path` holds the instruction.

        Raises:
            MicroBatchLostError: the engine gave up; nothing that tasks staged counts.
        """
        ...

    def fold(
        self, stage: StageId, work: list[tuple[StatePlace, StateRef, StagedName]]
    ) -> list[StateRef | None]:
        """Fold each subtask's deltas into a new base, beside the running micro-batches."""
        ...

    def cancel(self) -> None:
        """Stop what is running, now."""
        ...

    def close(self) -> None:
        """Let the engine forget the job; called once, after its end."""
        ...
