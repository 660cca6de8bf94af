"""When it is inside a task: the event time of the record being processed, and the clocks."""

from __future__ import annotations

import time

from penstock.common.event_time import MIN_WATERMARK, NO_TIMESTAMP

__all__ = ["Moment"]


class Moment:
    """One per task: set by whoever gives a record to a chain, read by whoever asks.

    What is emitted has the event time that is set at that moment; who sets another for a while
    puts the old one back.
    """

    __slots__ = ("_began", "started", "timestamp", "watermark")

    def __init__(self, watermark: int = MIN_WATERMARK, started: int = 0) -> None:
        self.timestamp = NO_TIMESTAMP
        """Of the record that is being processed."""
        self.watermark = watermark
        """At the first step of the stage."""
        self.started = started
        """Processing time when the micro-batch began, by the driver's clock."""
        self._began = time.monotonic()

    def now(self) -> int:
        """Return processing time in milliseconds, by the clock of the driver."""
        return self.started + int((time.monotonic() - self._began) * 1000)
