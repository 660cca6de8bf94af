"""What becomes of checkpoints when a job is cancelled."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointRetention"]


class ExternalizedCheckpointRetention(Enum):
    """Whether completed checkpoints outlive a cancelled job."""

    DELETE_ON_CANCELLATION = 0
    """They are deleted; those of a failed job stay."""
    RETAIN_ON_CANCELLATION = 1
    """They stay, and whoever cancels the job deletes them."""
    NO_EXTERNALIZED_CHECKPOINTS = 2
    """They are the job's own."""
