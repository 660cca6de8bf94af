"""Which time a timer goes by."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """The time of the records, or that of the machine."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
