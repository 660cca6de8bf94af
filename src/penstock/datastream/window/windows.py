"""Windows and their serializers."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import total_ordering
from io import BytesIO
from typing import TYPE_CHECKING, Any

from penstock.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from penstock.common.serializer import TypeSerializer

if TYPE_CHECKING:
    from penstock.datastream.window.assigners import MergingWindowAssigner

__all__ = [
    "MAX_LONG_VALUE",
    "MIN_LONG_VALUE",
    "CountWindow",
    "CountWindowSerializer",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "TimeWindow",
    "TimeWindowSerializer",
    "Window",
]


class Window(ABC):
    """A group of records of a stream, with a maximum timestamp."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp that belongs to the window."""


@total_ordering
class TimeWindow(Window):
    """The time from `start` up to, not including, `end`, in milliseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        """Return the last millisecond of the window."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Tell whether both overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window of this size that contains a time."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        """Call back for each set of windows that overlap or touch."""
        groups: list[tuple[TimeWindow, set[TimeWindow]]] = []
        for window in sorted(windows):
            if groups and groups[-1][0].intersects(window):
                whole, members = groups[-1]
                groups[-1] = whole.cover(window), members | {window}
            else:
                groups.append((window, {window}))
        for whole, members in groups:
            if len(members) > 1:
                callback.merge(members, whole)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        assert isinstance(other, TimeWindow)
        return self.start == other.start and self.end == other.end

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """A window of a number of records of a key; `id` numbers the windows of a key."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:  # noqa: A002 - PyFlink's name
        self.id = id

    def max_timestamp(self) -> int:
        """Return the largest timestamp there is."""
        return MAX_LONG_VALUE

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The only window, for all records."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        """Return the largest timestamp there is."""
        return MAX_LONG_VALUE

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL = GlobalWindow()
_TWO_NUMBERS = struct.Struct(">qq")
_ONE_NUMBER = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Writes a `TimeWindow`."""

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        """Append start and end."""
        stream.write(_TWO_NUMBERS.pack(element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        """Read start and end."""
        return TimeWindow(*_TWO_NUMBERS.unpack(stream.read(_TWO_NUMBERS.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Writes a `CountWindow`."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        """Append the number."""
        stream.write(_ONE_NUMBER.pack(element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        """Read the number."""
        return CountWindow(*_ONE_NUMBER.unpack(stream.read(_ONE_NUMBER.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Writes the `GlobalWindow`."""

    def serialize(self, element: Any, stream: BytesIO) -> None:
        """Append a zero."""
        stream.write(b"\0")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        """Read it."""
        stream.read(1)
        return GlobalWindow.get()
