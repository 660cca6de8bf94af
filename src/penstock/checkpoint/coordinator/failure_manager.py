"""Counts failed checkpoints in a row, and says which failures count."""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """Why a checkpoint was aborted; the values are persisted."""

    EXPIRED = "expired"
    """It took longer than its timeout."""
    ASYNC_FAILED = "async-failed"
    """The snapshot of a stage could not be made durable."""
    FINALIZE_FAILED = "finalize-failed"
    """Its metadata could not be written or read back."""
    SUBSUMED = "subsumed"
    """A later checkpoint completed first."""
    JOB_STOPPING = "job-stopping"
    """The attempt ended before the checkpoint was complete."""

    @property
    def counts(self) -> bool:
        """Whether it counts towards the tolerable number of failures."""
        return self not in (self.SUBSUMED, self.JOB_STOPPING)


class CheckpointFailureManager:
    """Counts the failures since the last completed checkpoint.

    Savepoints do not count: a failed savepoint is reported to the client that requested it.
    """

    def __init__(self) -> None:
        self.consecutive = 0

    def failed(self, reason: CheckpointFailureReason) -> None:
        """Count an aborted checkpoint; called once for each."""
        self.consecutive += reason.counts

    def completed(self) -> None:
        """Start again at a completed checkpoint."""
        self.consecutive = 0

    def exceeds(self, tolerable: int) -> bool:
        """Whether the job has to fail."""
        return self.consecutive > tolerable
