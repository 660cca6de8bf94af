"""Watermark strategies: the timestamps and watermarks of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.common.event_time import MIN_WATERMARK
from penstock.common.pyflink.missing_names import missing_name_getattr
from penstock.common.time import Duration

__all__ = [
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]


class TimestampAssigner(ABC):
    """Extracts the event time of records.

    Called once per record, and again for records that are replayed after a failure: it must return
    the same for the same record.
    """

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of a record, in milliseconds since the epoch.

        ``record_timestamp`` is the record's present timestamp, the least 64-bit number if it has
        none.
        """


class WatermarkOutput:
    """Receives the watermarks of a generator; only the highest counts."""

    __slots__ = ("is_idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.is_idle = False

    def emit_watermark(self, watermark: int) -> None:
        """Emit a watermark: no record with this event time, or an earlier one, follows."""
        self.is_idle = False
        self.watermark = max(self.watermark, watermark)

    def mark_idle(self) -> None:
        """Mark the stream as idle until its next watermark."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Mark the stream as active."""
        self.is_idle = False


class WatermarkGenerator(ABC):
    """Generates the watermarks of one split of a source, or of one subtask.

    Watermarks take effect at the end of a micro-batch, and never decrease. The fields of a
    generator are kept between micro-batches and in every checkpoint, so they must be picklable;
    with ``__getstate__`` some may be omitted, which ``__init__`` creates again.
    """

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for each record, in order."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit a watermark.

        Called in the task at the end of every micro-batch with records, and without records on the
        driver, every ``pipeline.auto-watermark-interval``.
        """


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Sources of one group wait for each other if one is ahead by more than the drift."""

    group: str
    max_drift: Duration
    update_interval: Duration


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """The event time of a stream.

    ``max_out_of_orderness`` is zero for ascending timestamps, and None without watermarks or with a
    custom ``generator``.
    """

    max_out_of_orderness: Duration | None = None
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout: Duration | None = None
    alignment: WatermarkAlignment | None = None
    generator: Callable[[], WatermarkGenerator] | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Create a strategy for ascending timestamps."""
        return WatermarkStrategy(Duration.of_millis(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Create a strategy for records that are out of order by at most this."""
        return WatermarkStrategy(max_out_of_orderness)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Create a strategy without watermarks."""
        return WatermarkStrategy()

    @staticmethod
    def for_generator(generator: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Create a strategy with a custom watermark generator; `generator` creates one."""
        return WatermarkStrategy(generator=generator)

    @property
    def does_nothing(self) -> bool:
        """Whether the strategy has no effect."""
        parts = (self.max_out_of_orderness, self.timestamp_assigner, self.generator)
        return all(part is None for part in parts)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Return this strategy with a timestamp assigner."""
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Return this strategy with an idle timeout."""
        return replace(self, idle_timeout=idle_timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Return this strategy with watermark alignment of the source in a group."""
        interval = update_interval or Duration.of_millis(1000)
        alignment = WatermarkAlignment(watermark_group, max_allowed_watermark_drift, interval)
        return replace(self, alignment=alignment)


if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
