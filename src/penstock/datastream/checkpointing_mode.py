"""The consistency modes of checkpoints."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """The consistency that checkpoints guarantee."""

    EXACTLY_ONCE = 0
    """Every record affects state exactly once, and output too if the sink commits."""
    AT_LEAST_ONCE = 1
    """Records may be processed again after a failure; barriers are not aligned."""
    AT_MOST_ONCE = 2
    """Records may be lost after a failure, but are never processed twice. Not in PyFlink."""
