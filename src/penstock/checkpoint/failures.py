"""How many checkpoints failed in a row, and which failures count."""

from __future__ import annotations

from enum import Enum

__all__ = ["AbortReason", "FailureCount"]


class AbortReason(Enum):
    """Why a checkpoint was given up."""

    EXPIRED = "expired"
    """It took longer than its timeout."""
    ASYNC_FAILED = "async-failed"
    """What a stage froze could not be made durable."""
    FINALIZE_FAILED = "finalize-failed"
    """Its metadata could not be written or read back."""
    SUBSUMED = "subsumed"
    """A later checkpoint completed first."""
    JOB_STOPPING = "job-stopping"
    """The attempt ended before it was complete."""

    @property
    def counts(self) -> bool:
        """Whether it says something is wrong, and so counts towards the tolerable number."""
        return self not in _HARMLESS


_HARMLESS = frozenset({AbortReason.SUBSUMED, AbortReason.JOB_STOPPING})


class FailureCount:
    """Counts failures of checkpoints since the last one that completed.

    Savepoints do not go in here: a failed savepoint is told to whoever asked for it.
    """

    def __init__(self) -> None:
        self._consecutive = 0

    @property
    def consecutive(self) -> int:
        """How many failed since the last completion."""
        return self._consecutive

    def failed(self, reason: AbortReason) -> None:
        """Learn that a checkpoint was given up; called once per checkpoint."""
        self._consecutive += reason.counts

    def completed(self) -> None:
        """Learn that a checkpoint completed."""
        self._consecutive = 0

    def exceeds(self, tolerable: int) -> bool:
        """Tell whether the job has to fail."""
        return self._consecutive > tolerable
