"""Assigners of session windows, which last as long as records keep coming."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from penstock.common.time import Time
from penstock.datastream.window.assigners import (
    EventTimeAssigner,
    MergingWindowAssigner,
    ProcessingTimeAssigner,
    TimeWindowAssigner,
    refuse,
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
    """Extracts the session gap from a record."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap after this record, in milliseconds."""


class _Sessions(MergingWindowAssigner[Any, TimeWindow], TimeWindowAssigner):
    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: MergingWindowAssigner.MergeCallback[TimeWindow],
    ) -> None:
        """Merge windows that overlap or touch."""
        TimeWindow.merge_windows(windows, callback)


class _FixedGap(_Sessions):
    def __init__(self, session_gap: int) -> None:
        if session_gap <= 0:
            refuse(self, "0 < gap", gap=session_gap)
        self._session_gap = session_gap

    @classmethod
    def with_gap(cls, size: Time) -> Self:
        """Create sessions with a fixed gap."""
        return cls(size.to_milliseconds())

    def _windows(self, element: Any, time: int) -> list[TimeWindow]:
        return [TimeWindow(time, time + self._session_gap)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_gap})"


class _DynamicGap(_Sessions):
    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = session_window_time_gap_extractor

    @classmethod
    def with_dynamic_gap(cls, extractor: SessionWindowTimeGapExtractor) -> Self:
        """Create sessions whose gap each record determines."""
        return cls(extractor)

    def _windows(self, element: Any, time: int) -> list[TimeWindow]:
        gap = self._extractor.extract(element)
        if gap <= 0:
            refuse(self, "0 < gap", gap=gap)
        return [TimeWindow(time, time + gap)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._extractor).__name__})"


class EventTimeSessionWindows(_FixedGap, EventTimeAssigner):
    """Sessions in event time: a record more than the gap after all others starts a new one."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Create sessions whose gap each record determines."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap, ProcessingTimeAssigner):
    """Sessions in processing time."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        """Create sessions whose gap each record determines."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_DynamicGap, EventTimeAssigner):
    """Sessions in event time whose gap each record determines."""


class DynamicProcessingTimeSessionWindows(_DynamicGap, ProcessingTimeAssigner):
    """Sessions in processing time whose gap each record determines."""


SESSION_WINDOW_ASSIGNERS = frozenset(
    {
        EventTimeSessionWindows,
        ProcessingTimeSessionWindows,
        DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows,
    }
)
"""Assigners whose windows are merged if, and only if, they overlap or touch."""
