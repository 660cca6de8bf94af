"""The retention of checkpoints when a job is cancelled."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointRetention"]


class ExternalizedCheckpointRetention(Enum):
    """Whether completed checkpoints are kept when a job is cancelled."""

    DELETE_ON_CANCELLATION = 0
    """They are deleted; those of a failed job are kept."""
    RETAIN_ON_CANCELLATION = 1
    """They are kept, and the user deletes them."""
    NO_EXTERNALIZED_CHECKPOINTS = 2
    """They are deleted with the job."""
