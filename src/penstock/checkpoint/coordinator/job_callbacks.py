"""The interface between the checkpoint coordinator and the job attempt it works for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.ids import CheckpointId, StageId


class JobCallbacks(Protocol):
    """What the coordinator calls on the attempt, from its own thread."""

    def wake(self) -> None:
        """Let every region loop look at the coordinator's view again."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the attempt because of an error."""
        ...

    def completed(self, completed: CompletedCheckpoint, operators: list[OperatorSnapshot]) -> None:
        """A checkpoint or savepoint is complete."""
        ...

    def notify_checkpoint_complete(self, operators: list[OperatorSnapshot]) -> None:
        """Notify sources that a checkpoint is complete: they may acknowledge what it holds."""
        ...

    def notify_checkpoints_discarded(self, checkpoints: list[CheckpointId]) -> None:
        """Checkpoints have been deleted."""
        ...

    def end(self, stopped_at: CompletedCheckpoint | None) -> None:
        """End the job: its last checkpoint is complete and committed."""
        ...


@dataclass(frozen=True, slots=True)
class StageFacts:
    """A stage as the coordinator sees it."""

    id: StageId
    name: str
    listens: bool
    """Whether functions in it want to be notified of checkpoints."""
