"""The in-flight windows of a key, for windows that merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.common.typeinfo import Types
from penstock.datastream.state import MapState, MapStateDescriptor
from penstock.datastream.window.assigners import MergingWindowAssigner
from penstock.datastream.window.sessions import SESSION_WINDOW_ASSIGNERS
from penstock.datastream.window.windows import TimeWindow
from penstock.state.window_encoding import WindowEncoding

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())

IN_FLIGHT = MapStateDescriptor("merging-window-set", _BYTES, _BYTES)
"""The in-flight windows of a key, each with its state window, whose state holds its contents.

A window grows without moving its contents: they stay in the state of the window that it once was.
None stands for the window itself.
"""


@dataclass(frozen=True, slots=True)
class Merge:
    """Windows that were merged, and the state windows of their contents."""

    result: Any
    namespace: bytes
    """The result's bytes."""
    merged: dict[bytes, Any]
    """By their bytes, in order; without the window that was just added, which was empty."""
    contents: bytes
    """The state window of the result."""
    other_contents: list[bytes]
    """The state windows whose contents have to be merged into it."""


_Group = tuple[Any, list[bytes], bool]
"""Windows to merge: the result, those in flight, and whether the new one is among them."""


class MergingWindowSet:
    """The in-flight windows of the current key; every change is written to its state at once."""

    def __init__(
        self,
        assigner: MergingWindowAssigner[Any, Any],
        encoding: WindowEncoding,
        state: MapState[bytes, bytes],
    ) -> None:
        self._assigner = assigner
        self._encoding = encoding
        self._state = state
        self._contents = {window: kept or window for window, kept in state.items()}
        self._windows = {window: encoding.decode(window) for window in self._contents}
        touching = type(assigner) in SESSION_WINDOW_ASSIGNERS
        self._find = self._touching if touching else self._merged_by_assigner

    def contents_of(self, namespace: bytes) -> bytes | None:
        """Return the state window of a window; None if it is not in flight."""
        return self._contents.get(namespace)

    def retire(self, namespace: bytes) -> None:
        """Remove a window."""
        del self._contents[namespace]
        del self._windows[namespace]
        self._state.remove(namespace)

    def add(self, window: Any, merge: Callable[[Merge], None]) -> tuple[Any, bytes]:
        """Add a window; return the one that it is part of now, and its bytes.

        ``merge`` is called for in-flight windows that were merged or that grew.
        """
        namespace = self._encoding.encode(window)
        if namespace in self._contents:
            return window, namespace
        result = window, namespace
        for whole, in_flight, has_new in self._find(window, namespace):
            encoded = self._encoding.encode(whole)
            if has_new:
                result = whole, encoded
            before = sorted(in_flight)
            if before and before != [encoded]:
                self._merge(whole, encoded, before, merge)
        if result[1] not in self._contents:
            self._put(*result, result[1])
        return result

    def _touching(self, window: TimeWindow, namespace: bytes) -> list[_Group]:
        """Find the windows that overlap or touch a window; no two in-flight windows do."""
        start, end = window.start, window.end
        found = {n: w for n, w in self._windows.items() if w.start <= end and start <= w.end}
        if not found:
            return []
        start = min(start, *(w.start for w in found.values()))
        end = max(end, *(w.end for w in found.values()))
        return [(TimeWindow(start, end), list(found), True)]

    def _merged_by_assigner(self, window: Any, namespace: bytes) -> list[_Group]:
        """Let the assigner find the windows to merge."""
        encode, found = self._encoding.encode, _MergeCallback()
        self._assigner.merge_windows([*self._windows.values(), window], found)
        groups = []
        for whole, to_be_merged in found.groups:
            members = {encode(member) for member in to_be_merged}
            before = [member for member in members if member in self._windows]
            groups.append((whole, before, namespace in members))
        return groups

    def _merge(
        self, whole: Any, namespace: bytes, before: list[bytes], merge: Callable[[Merge], None]
    ) -> None:
        contents = [self._contents[member] for member in before]
        merged = {member: self._windows[member] for member in before}
        for member in before:
            self.retire(member)
        self._put(whole, namespace, contents[0])
        merge(Merge(whole, namespace, merged, contents[0], contents[1:]))

    def _put(self, window: Any, namespace: bytes, contents: bytes) -> None:
        self._windows[namespace] = window
        self._contents[namespace] = contents
        # None takes no space, and most windows are their own state window.
        kept: Any = None if contents == namespace else contents
        self._state.put(namespace, kept)


class _MergeCallback(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.groups: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.groups.append((merge_result, list(to_be_merged)))
