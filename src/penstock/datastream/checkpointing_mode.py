"""What a record may do when a job fails and comes back."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """The guarantee checkpoints are taken for."""

    EXACTLY_ONCE = 0
    """State is as if every record had come once; with a sink that commits, output too."""
    AT_LEAST_ONCE = 1
    """Records may count again after a failure; barriers hold nothing up."""
    AT_MOST_ONCE = 2
    """Records may be lost after a failure and never count twice; not in PyFlink."""
