"""Evictors, which remove records from a window before or after its function is called.

Not in PyFlink. With an evictor a window keeps all its records, each with its timestamp, and
`reduce` and `aggregate` process them when the window fires.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.common.time import Time
from penstock.datastream.window.delta import DeltaFunction
from penstock.datastream.window.windows import MIN_LONG_VALUE

__all__ = ["CountEvictor", "DeltaEvictor", "Evictor", "TimeEvictor", "TimestampedValue"]

T = TypeVar("T")
W = TypeVar("W")


class TimestampedValue(NamedTuple):
    """A record of a window with its event time, the least 64-bit number if it has none."""

    value: Any
    timestamp: int

    def get_value(self) -> Any:
        """Return the record."""
        return self.value

    def get_timestamp(self) -> int:
        """Return its timestamp."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Tell whether it has a timestamp."""
        return self.timestamp != MIN_LONG_VALUE


class Evictor(ABC, Generic[T, W]):
    """Removes records from a window, by changing the list of elements in place."""

    class EvictorContext(ABC):
        """Gives an evictor the time."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark."""

    @abstractmethod
    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove records before the window's function is called; the oldest come first."""

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove records after the window's function was called."""


class _OnceEvictor(Evictor[Any, Any]):
    """Evicts either before or after the function."""

    def __init__(self, do_evict_after: bool) -> None:
        self._do_evict_after = do_evict_after

    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Any,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        if not self._do_evict_after:
            self._evict(elements)

    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Any,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        if self._do_evict_after:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue]) -> None: ...


class CountEvictor(_OnceEvictor):
    """Keeps the last `max_count` records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Create the evictor."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self._max_count)]


class TimeEvictor(_OnceEvictor):
    """Keeps the records of the last `window_size` milliseconds before the newest."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._window_size = window_size

    @staticmethod
    def of(window_size: Time, do_evict_after: bool = False) -> TimeEvictor:
        """Create the evictor."""
        return TimeEvictor(window_size.to_milliseconds(), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements or not elements[0].has_timestamp():
            return
        oldest = max(element.timestamp for element in elements) - self._window_size
        elements[:] = [element for element in elements if element.timestamp > oldest]


class DeltaEvictor(_OnceEvictor):
    """Keeps the records whose distance to the last one is below a threshold."""

    def __init__(
        self, threshold: float, delta_function: DeltaFunction[Any], do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        self._threshold = threshold
        self._delta_function = delta_function

    @staticmethod
    def of(
        threshold: float, delta_function: DeltaFunction[Any], do_evict_after: bool = False
    ) -> DeltaEvictor:
        """Create the evictor."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements:
            return
        last, distance = elements[-1].value, self._delta_function.get_delta
        elements[:] = [e for e in elements if distance(e.value, last) < self._threshold]
