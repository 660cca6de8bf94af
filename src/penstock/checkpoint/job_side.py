"""The job as its coordinator sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.checkpoint.metadata import OperatorSnapshot
from penstock.checkpoint.store import Completed
from penstock.ids import CheckpointId, StageId


class JobSide(Protocol):
    """What the coordinator asks of the job it works for; called from its thread."""

    def wake(self) -> None:
        """Let every loop look at the barriers again."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the attempt."""
        ...

    def completed(self, completed: Completed, operators: list[OperatorSnapshot]) -> None:
        """A checkpoint or savepoint is complete."""
        ...

    def settled(self, operators: list[OperatorSnapshot]) -> None:
        """What a completed checkpoint holds counts for good: the outside world may know."""
        ...

    def discarded(self, checkpoints: list[CheckpointId]) -> None:
        """Checkpoints are gone."""
        ...

    def end(self, stopped_at: Completed | None) -> None:
        """The last checkpoint is complete and committed: the job is over."""
        ...


@dataclass(frozen=True, slots=True)
class StageFacts:
    """A stage as the coordinator sees it."""

    id: StageId
    name: str
    is_source: bool
    listens: bool
    """Whether functions in it want to be told of checkpoints."""
