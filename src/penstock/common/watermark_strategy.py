"""How timestamps and watermarks come into a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.common.event_time import MIN_WATERMARK
from penstock.common.missing_names import asked_of
from penstock.common.time import Duration

__all__ = [
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]


class TimestampAssigner(ABC):
    """Gives records their event time.

    Called once per record of the stream it is set on, and again for records replayed after
    a failure: it must answer the same for the same record.
    """

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of a record, in milliseconds since the epoch.

        ``record_timestamp`` is the one the record already had, the lowest 64-bit number if
        it had none.
        """


class WatermarkOutput:
    """Where a generator puts its watermarks; only the highest counts."""

    __slots__ = ("is_idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.is_idle = False

    def emit_watermark(self, watermark: int) -> None:
        """Say that no record with this event time, or an earlier one, is to come."""
        self.is_idle = False
        self.watermark = max(self.watermark, watermark)

    def mark_idle(self) -> None:
        """Say that nobody shall wait for this stream until it gives another watermark."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Take `mark_idle` back."""
        self.is_idle = False


class WatermarkGenerator(ABC):
    """Makes the watermarks of one split of a source, or of one subtask behind it.

    Watermarks count at the end of a micro-batch, and one that was given is never taken back. The
    fields of a generator go from micro-batch to micro-batch and into every checkpoint, so they must
    pickle; with ``__getstate__`` some may be left out, which ``__init__`` makes anew.
    """

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Look at a record; called once for each, in order."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Give a watermark for what was seen, or for the time it is.

        Called in the task at the end of every micro-batch with records for it, and without
        records on the driver, every ``pipeline.auto-watermark-interval``.
        """


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Sources of one group wait for each other when one runs further ahead than this."""

    group: str
    max_drift: Duration
    update_interval: Duration


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """What a stream knows about its event time.

    ``max_out_of_orderness`` is zero for ascending timestamps and None for no watermarks, or for
    those that ``generator`` makes.
    """

    max_out_of_orderness: Duration | None = None
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout: Duration | None = None
    alignment: WatermarkAlignment | None = None
    generator: Callable[[], WatermarkGenerator] | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Create a strategy for timestamps that never go back."""
        return WatermarkStrategy(Duration.of_millis(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Create a strategy for records that come at most this late."""
        return WatermarkStrategy(max_out_of_orderness)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Create a strategy that never gives a watermark."""
        return WatermarkStrategy()

    @staticmethod
    def for_generator(generator: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Create a strategy with watermarks of the user's own; `generator` makes a new one."""
        return WatermarkStrategy(generator=generator)

    @property
    def does_nothing(self) -> bool:
        """Whether a stream with this strategy is as it would be without one."""
        gives = (self.max_out_of_orderness, self.timestamp_assigner, self.generator)
        return all(part is None for part in gives)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Return this strategy with timestamps taken from the records."""
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Return this strategy with inputs left out once they were silent for so long."""
        return replace(self, idle_timeout=idle_timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Return this strategy with its source held back to the pace of its group."""
        interval = update_interval or Duration.of_millis(1000)
        alignment = WatermarkAlignment(watermark_group, max_allowed_watermark_drift, interval)
        return replace(self, alignment=alignment)


if not TYPE_CHECKING:  # a type checker shall find typos
    __getattr__ = asked_of(__name__)
