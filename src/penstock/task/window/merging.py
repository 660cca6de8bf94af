"""The windows of a key that are in flight, where windows may become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.common.typeinfo import Types
from penstock.datastream.state import MapState, MapStateDescriptor
from penstock.datastream.window.assigners import MergingWindowAssigner
from penstock.datastream.window.windows import TimeWindow
from penstock.state.window_bytes import TIME, WindowEncoding

__all__ = ["Merge", "MergingWindowSet", "StoredWindows"]


@dataclass(frozen=True, slots=True)
class Merge:
    """Windows that became one: what it is, what they were, and where their contents lie."""

    result: Any
    merged: list[Any]
    """In the order of time; without the window that was just added, which had nothing yet."""
    state_window: Any
    """Under which the contents of the result are kept."""
    merged_state_windows: list[Any]
    """Whose contents have to go there."""


class StoredWindows:
    """The windows in flight as a key's state: each with the one its contents are kept under.

    A window grows without its contents moving: they stay under the window that it once was.
    """

    def __init__(self, encoding: WindowEncoding) -> None:
        self._encoding = encoding
        is_time = encoding.name == TIME
        shape = Types.TUPLE([Types.LONG(), Types.LONG()]) if is_time else _BYTES
        self.descriptor = MapStateDescriptor("merging-window-set", shape, shape)
        self.write: Callable[[Any], Any] = _ends if is_time else encoding.encode
        self.read: Callable[[Any], Any] = _window if is_time else encoding.decode

    def order(self, windows: Iterable[Any]) -> list[Any]:
        """Return windows in the order of their bytes, which for those in time is that of time."""
        return sorted(windows, key=self._encoding.encode)


_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


def _ends(window: TimeWindow) -> tuple[int, int]:
    return window.start, window.end


def _window(ends: tuple[int, int]) -> TimeWindow:
    return TimeWindow(*ends)


class MergingWindowSet:
    """The windows in flight of the current key; every change goes to its state at once."""

    def __init__(
        self,
        assigner: MergingWindowAssigner[Any, Any],
        stored: StoredWindows,
        state: MapState[Any, Any],
    ) -> None:
        self._assigner = assigner
        self._stored = stored
        self._state = state
        self._state_windows = {stored.read(w): stored.read(s) for w, s in state.items()}

    def state_window(self, window: Any) -> Any:
        """Return where the contents of a window in flight lie; None if it is not in flight."""
        return self._state_windows.get(window)

    def retire(self, window: Any) -> None:
        """Forget a window."""
        del self._state_windows[window]
        self._state.remove(self._stored.write(window))

    def add(self, window: Any, merge: Callable[[Merge], None]) -> Any:
        """Add a window and return the one that it is part of now.

        ``merge`` is told of windows in flight that became one by it, or that grew.
        """
        in_flight = self._state_windows
        found = _Findings()
        if window not in in_flight:
            self._assigner.merge_windows([*in_flight, window], found)
        result = window
        for members, whole in found.groups:
            before = self._stored.order(member for member in members if member in in_flight)
            if window in members:
                result = whole
            if before:
                self._become_one(whole, before, merge)
        if result not in in_flight:
            self._put(result, result)
        return result

    def _become_one(self, whole: Any, before: list[Any], merge: Callable[[Merge], None]) -> None:
        if before == [whole]:
            return
        state_windows = [self._state_windows[window] for window in before]
        for window in before:
            self.retire(window)
        self._put(whole, state_windows[0])
        merge(Merge(whole, before, state_windows[0], state_windows[1:]))

    def _put(self, window: Any, state_window: Any) -> None:
        self._state_windows[window] = state_window
        write = self._stored.write
        self._state.put(write(window), write(state_window))


class _Findings(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.groups: list[tuple[set[Any], Any]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.groups.append((set(to_be_merged), merge_result))
