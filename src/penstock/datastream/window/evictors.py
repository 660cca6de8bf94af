"""Evictors: which records leave a window before or after its function has seen them.

Java's; PyFlink has none. With an evictor a window keeps all its records, each with its time, and
`reduce` and `aggregate` fold them when the window fires.
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
        """Return its time."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Tell whether it has one."""
        return self.timestamp != MIN_LONG_VALUE


class Evictor(ABC, Generic[T, W]):
    """Removes records from a window: from the list it is given, in place."""

    class EvictorContext(ABC):
        """What an evictor may know."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return this machine's time in milliseconds."""

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
        """Remove records before the window's function gets them, the oldest first in the list."""

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove records after the window's function has had them."""


class _OnceEvictor(Evictor[Any, Any]):
    """Evicts before the function, or after it."""

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
    """Keeps the last so many records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Return such an evictor."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self._max_count)]


class TimeEvictor(_OnceEvictor):
    """Keeps the records that are not older than so much, as seen from the newest."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._window_size = window_size

    @staticmethod
    def of(window_size: Time, do_evict_after: bool = False) -> TimeEvictor:
        """Return such an evictor."""
        return TimeEvictor(window_size.to_milliseconds(), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements or not elements[0].has_timestamp():
            return
        cut = max(element.timestamp for element in elements) - self._window_size
        elements[:] = [element for element in elements if element.timestamp > cut]


class DeltaEvictor(_OnceEvictor):
    """Keeps the records that are nearer to the last one than a threshold."""

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
        """Return such an evictor."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements:
            return
        last, distance = elements[-1].value, self._delta_function.get_delta
        elements[:] = [e for e in elements if distance(e.value, last) < self._threshold]
