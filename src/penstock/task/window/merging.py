"""The windows of a key that are in flight, where windows may become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.common.typeinfo import Types
from penstock.datastream.state import MapState, MapStateDescriptor
from penstock.datastream.window.assigners import MergingWindowAssigner
from penstock.datastream.window.sessions import MERGE_WHERE_THEY_TOUCH
from penstock.datastream.window.windows import TimeWindow
from penstock.state.window_bytes import WindowEncoding

__all__ = ["IN_FLIGHT", "Merge", "MergingWindowSet"]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())

IN_FLIGHT = MapStateDescriptor("merging-window-set", _BYTES, _BYTES)
"""The windows in flight of a key, each with the one its contents are kept under.

A window grows without its contents moving: they stay under the window that it once was. None
stands for the window itself.
"""


@dataclass(frozen=True, slots=True)
class Merge:
    """Windows that became one: what it is, what they were, and where their contents lie."""

    result: Any
    namespace: bytes
    """The result's bytes."""
    merged: dict[bytes, Any]
    """By their bytes, in order; without the window that was just added, which had nothing yet."""
    contents: bytes
    """The window that the contents of the result are kept under."""
    other_contents: list[bytes]
    """The windows whose contents have to go there."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Windows that have to become one: those in flight, and perhaps the new one."""

    whole: Any
    before: list[bytes]
    has_new: bool


class MergingWindowSet:
    """The windows in flight of the current key; every change goes to its state at once."""

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
        touching = type(assigner) in MERGE_WHERE_THEY_TOUCH
        self._find = self._touching if touching else self._ask

    def contents_of(self, namespace: bytes) -> bytes | None:
        """Return the window that one's contents are kept under; None if it is not in flight."""
        return self._contents.get(namespace)

    def retire(self, namespace: bytes) -> None:
        """Forget a window."""
        del self._contents[namespace]
        del self._windows[namespace]
        self._state.remove(namespace)

    def add(self, window: Any, merge: Callable[[Merge], None]) -> tuple[Any, bytes]:
        """Add a window; return the one that it is part of now, and its bytes.

        ``merge`` is told of windows in flight that became one by it, or that grew.
        """
        namespace = self._encoding.encode(window)
        if namespace in self._contents:
            return window, namespace
        result = window, namespace
        for group in self._find(window, namespace):
            spelt = self._encoding.encode(group.whole)
            if group.has_new:
                result = group.whole, spelt
            before = sorted(group.before)
            if before and before != [spelt]:
                self._become_one(group.whole, spelt, before, merge)
        if result[1] not in self._contents:
            self._put(*result, result[1])
        return result

    def _touching(self, window: TimeWindow, namespace: bytes) -> list[_Group]:
        """Find those that overlap a window or touch it; no two of those in flight do."""
        start, end = window.start, window.end
        found = {n: w for n, w in self._windows.items() if w.start <= end and start <= w.end}
        if not found:
            return []
        start = min(start, *(w.start for w in found.values()))
        end = max(end, *(w.end for w in found.values()))
        return [_Group(TimeWindow(start, end), list(found), has_new=True)]

    def _ask(self, window: Any, namespace: bytes) -> list[_Group]:
        """Let the assigner say which windows have to become one."""
        encode, found = self._encoding.encode, _Findings()
        self._assigner.merge_windows([*self._windows.values(), window], found)
        groups = []
        for whole, to_be_merged in found.groups:
            members = {encode(member) for member in to_be_merged}
            before = [member for member in members if member in self._windows]
            groups.append(_Group(whole, before, has_new=namespace in members))
        return groups

    def _become_one(
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
        # None is stored as nothing, and is what most windows have.
        kept: Any = None if contents == namespace else contents
        self._state.put(namespace, kept)


class _Findings(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.groups: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.groups.append((merge_result, list(to_be_merged)))
