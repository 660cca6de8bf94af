"""Sessions: windows that last as long as records keep coming."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from penstock.common.time import Time
from penstock.datastream.window.assigners import (
    EventTimeAssigner,
    MergingWindowAssigner,
    ProcessingTimeAssigner,
    WindowAssigner,
    check_timestamp,
    refuse_gap,
)
from penstock.datastream.window.windows import TimeWindow

__all__ = [
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
]


class SessionWindowTimeGapExtractor(ABC):
    """Tells how long a session waits for another record, as a record says."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap behind this record, in milliseconds."""


class _Sessions(MergingWindowAssigner[Any, TimeWindow]):
    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: MergingWindowAssigner.MergeCallback[TimeWindow],
    ) -> None:
        """Let windows that overlap or touch become one."""
        TimeWindow.merge_windows(windows, callback)


class _FixedGap(_Sessions):
    def __init__(self, session_gap: int) -> None:
        refuse_gap(self, session_gap)
        self._session_gap = session_gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_gap})"


class _DynamicGap(_Sessions):
    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = session_window_time_gap_extractor

    def _gap(self, element: Any) -> int:
        gap = self._extractor.extract(element)
        refuse_gap(self, gap)
        return gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._extractor).__name__})"


class EventTimeSessionWindows(_FixedGap, EventTimeAssigner):
    """Sessions in event time: a record later than a gap behind all others begins a new one."""

    @staticmethod
    def with_gap(size: Time) -> EventTimeSessionWindows:
        """Return sessions with this gap."""
        return EventTimeSessionWindows(size.to_milliseconds())

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Return sessions whose gap each record says."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        check_timestamp(timestamp)
        return [TimeWindow(timestamp, timestamp + self._session_gap)]


class ProcessingTimeSessionWindows(_FixedGap, ProcessingTimeAssigner):
    """Sessions in the machine's time."""

    @staticmethod
    def with_gap(size: Time) -> ProcessingTimeSessionWindows:
        """Return sessions with this gap."""
        return ProcessingTimeSessionWindows(size.to_milliseconds())

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return sessions whose gap each record says."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + self._session_gap)]


class DynamicEventTimeSessionWindows(_DynamicGap, EventTimeAssigner):
    """Sessions in event time whose gap each record says."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Return such sessions."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        check_timestamp(timestamp)
        return [TimeWindow(timestamp, timestamp + self._gap(element))]


class DynamicProcessingTimeSessionWindows(_DynamicGap, ProcessingTimeAssigner):
    """Sessions in the machine's time whose gap each record says."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return such sessions."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + self._gap(element))]


MERGE_WHERE_THEY_TOUCH = frozenset(
    {
        EventTimeSessionWindows,
        ProcessingTimeSessionWindows,
        DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows,
    }
)
"""Assigners whose windows become one if, and only if, they overlap or touch."""
