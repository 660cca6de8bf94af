"""Functions over the contents of windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from penstock.datastream.runtime_context import Function, KeyedStateStore

__all__ = [
    "AllWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessWindowFunction",
    "WindowFunction",
]

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Computes results from the contents of a key's window."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results; after `reduce` or `aggregate`, `inputs` is one value."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Computes results from the contents of a window of a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results; after `reduce` or `aggregate`, `inputs` is one value."""


class _WindowContext(ABC, Generic[W2]):
    @abstractmethod
    def window(self) -> W2:
        """Return the window."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return the state of this window, and of this key if there are keys; see `clear`."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return the state of all windows, and of this key if there are keys."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Computes results from the contents of a key's window, with state of window and key."""

    class Context(_WindowContext[W2]):
        """Information about the window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds, which differs after a failure."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, the least 64-bit number as long as there is none."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Return or yield the results; after `reduce` or `aggregate`, `elements` is one value."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clear the window's state when the window is purged, after its allowed lateness."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Computes results from the contents of a window of a stream without keys, with state."""

    class Context(_WindowContext[W2]):
        """Information about the window."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Return or yield the results; after `reduce` or `aggregate`, `elements` is one value."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Clear the window's state when the window is purged, after its allowed lateness."""
