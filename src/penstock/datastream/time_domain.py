"""The time domains of timers."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """Event time or processing time."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
