"""Functions that are called with what a window holds."""

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
    """Makes results of what a window of a key holds."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results; with `reduce` or `aggregate`, `inputs` is one value."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Makes results of what a window of a stream without keys holds."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results; with `reduce` or `aggregate`, `inputs` is one value."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes results of what a window of a key holds, next to state of the window and of the key."""

    class Context(ABC, Generic[W2]):
        """What is known about the window."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return this machine's time in milliseconds, another one after a failure."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, the least 64-bit number as long as there is none."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this key and window; clear it in `clear`, or it stays."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state of this key, whatever the window."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Return or yield the results; with `reduce` or `aggregate`, `elements` is one value."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Remove the window's state: the window is over, lateness and all."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Makes results of what a window of a stream without keys holds, next to its state."""

    class Context(ABC, Generic[W2]):
        """What is known about the window."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this window; clear it in `clear`, or it stays."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state of all windows."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Return or yield the results; with `reduce` or `aggregate`, `elements` is one value."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Remove the window's state: the window is over, lateness and all."""
