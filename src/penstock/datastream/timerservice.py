"""Time as functions see it, and the timers they may set."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["TimerService"]


class TimerService(ABC):
    """Tells the time and keeps timers.

    A timer belongs to the key that is current when it is set. Setting it again changes nothing:
    for a key and a time it fires once. Timers are part of the job's state, so they come back after
    a failure; one that is due then fires when the job goes on.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return this machine's time in milliseconds, another one after a failure."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark, the least 64-bit number as long as there is none.

        It moves between micro-batches: while records are processed it stands where the micro-batch
        before left it.
        """

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Let `on_timer` be called once the machine's time is that late."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Let `on_timer` be called once the watermark has come that far."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a timer of the machine's time; one that was not set is no error."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer of event time; one that was not set is no error."""
