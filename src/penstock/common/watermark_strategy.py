"""How timestamps and watermarks come into a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from penstock.common.time import Duration

__all__ = ["TimestampAssigner", "WatermarkAlignment", "WatermarkStrategy"]


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


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Sources of one group wait for each other when one runs further ahead than this."""

    group: str
    max_drift: Duration
    update_interval: Duration


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """What a stream knows about its event time; it does nothing by itself.

    ``max_out_of_orderness`` is zero for ascending timestamps and None for no watermarks.
    """

    max_out_of_orderness: Duration | None = None
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout: Duration | None = None
    alignment: WatermarkAlignment | None = None

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
