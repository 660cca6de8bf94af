"""Encodes windows as the bytes that follow a key.

They contain their own length, and sort by time. They are part of every checkpoint: an encoding may
be added, but none may ever change.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from io import BytesIO
from typing import Any

from penstock.common.serializer import TypeSerializer
from penstock.datastream.window.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)

TIME = "time"
COUNT = "count"
GLOBAL = "global"
CUSTOM = "custom"

TWO_NUMBERS = struct.Struct(">QQ")
ONE_NUMBER = struct.Struct(">Q")
_LENGTH = struct.Struct(">I")
_MIDDLE = 1 << 63


class WindowEncoding(ABC):
    """The encoding of the windows of one assigner."""

    name: str

    @abstractmethod
    def encode(self, window: Any) -> bytes:
        """Return the bytes of a window."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Return the window that has these bytes."""


class _TimeEncoding(WindowEncoding):
    name = TIME

    def encode(self, window: TimeWindow) -> bytes:
        return TWO_NUMBERS.pack(window.start + _MIDDLE, window.end + _MIDDLE)

    def decode(self, data: bytes) -> TimeWindow:
        start, end = TWO_NUMBERS.unpack(data)
        return TimeWindow(start - _MIDDLE, end - _MIDDLE)


class _CountEncoding(WindowEncoding):
    name = COUNT

    def encode(self, window: CountWindow) -> bytes:
        return ONE_NUMBER.pack(window.id + _MIDDLE)

    def decode(self, data: bytes) -> CountWindow:
        return CountWindow(ONE_NUMBER.unpack(data)[0] - _MIDDLE)


class _GlobalEncoding(WindowEncoding):
    name = GLOBAL

    def encode(self, window: GlobalWindow) -> bytes:
        return b"\0"

    def decode(self, data: bytes) -> GlobalWindow:
        return GlobalWindow.get()


class _CustomEncoding(WindowEncoding):
    """The bytes of a user's serializer, with their length before them."""

    name = CUSTOM

    def __init__(self, serializer: TypeSerializer[Any]) -> None:
        self._serializer = serializer

    def encode(self, window: Any) -> bytes:
        stream = BytesIO()
        self._serializer.serialize(window, stream)
        data = stream.getvalue()
        return _LENGTH.pack(len(data)) + data

    def decode(self, data: bytes) -> Any:
        return self._serializer.deserialize(BytesIO(data[_LENGTH.size :]))


_BUILT_IN: dict[type[TypeSerializer[Any]], WindowEncoding] = {
    TimeWindowSerializer: _TimeEncoding(),
    CountWindowSerializer: _CountEncoding(),
    GlobalWindowSerializer: _GlobalEncoding(),
}


def encoding_for(serializer: TypeSerializer[Any]) -> WindowEncoding:
    """Return the encoding of windows with this serializer."""
    return _BUILT_IN.get(type(serializer)) or _CustomEncoding(serializer)


_LENGTHS = {TIME: TWO_NUMBERS.size, COUNT: ONE_NUMBER.size, GLOBAL: 1}


def length_of(encoding: str, data: bytes, start: int) -> int:
    """Return the length of the window that starts at ``start``, in the named encoding."""
    if encoding == CUSTOM:
        length: int = _LENGTH.unpack_from(data, start)[0]
        return _LENGTH.size + length
    return _LENGTHS[encoding]
