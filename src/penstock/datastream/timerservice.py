"""The timer service of functions."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["TimerService"]


class TimerService(ABC):
    """Tells the time and keeps timers.

    A timer belongs to the key that is current when it is registered. Registering it again changes
    nothing: it fires once per key and time. Timers are part of the job's state, so a failure does
    not lose them; one that is due then fires when the job continues.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds, which differs after a failure."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark, the least 64-bit number as long as there is none.

        It advances between micro-batches: while records are processed it has the value after the
        previous micro-batch.
        """

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Register a call of `on_timer` at a processing time."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Register a call of `on_timer` when the watermark reaches a time."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a processing-time timer; does nothing if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete an event-time timer; does nothing if there is none."""
