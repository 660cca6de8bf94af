"""Timers, stored with the keyed state in the order of their times.

An entry of the table is key group, time, key and namespace, with an empty value. So a timer exists
once however often it is registered, and the timers that are due come first in their key group.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from struct import Struct

from penstock.common.event_time import MAX_WATERMARK
from penstock.common.typeinfo import Types
from penstock.state.backends.store import end_of_prefix
from penstock.state.delta import Delta
from penstock.state.key_groups import KeyGroupRange, end_of_key
from penstock.state.keyed.key_context import KeyContext
from penstock.state.keyed.stored_state import StoredState
from penstock.state.registry.meta_info import TIMERS

_TIME = Struct(">Q")
_BIAS = 1 << 63
_LENGTH = b"\x08"
"""The length of a time, in the position of a routed key's length."""
_AT = 3
_KEY_AT = 11

Timer = tuple[int, bytes, bytes]
"""Time, routed key and namespace."""


class TimerTable(StoredState):
    """The timers of a time domain, micro-batch by micro-batch.

    The changes of the micro-batch override the stored timers. Stored timers that are due are read
    when the first of them is requested.
    """

    __slots__ = ("_changes", "_heap", "_read_to", "_stored")

    _changes: dict[bytes, bool]
    """Whether an entry exists, for those that this micro-batch has read or changed."""
    _heap: list[tuple[int, bytes]]
    _stored: int | None
    """A lower bound of the first stored timer's time; None if there is none."""
    _read_to: int | None
    """The time up to which stored timers have been read."""

    kind = TIMERS

    def __init__(self, context: KeyContext, name: str) -> None:
        super().__init__(context, name, Types.LONG())
        self._reset(0)

    def set(self, time: int, namespace: bytes = b"") -> None:
        """Register a timer of the current key; registering it again changes nothing."""
        entry = self._entry(time, namespace)
        if self._changes.get(entry) is not True:
            self._changes[entry] = True
            heapq.heappush(self._heap, (time, entry))

    def delete(self, time: int, namespace: bytes = b"") -> None:
        """Delete a timer of the current key; does nothing if there is none."""
        self._changes[self._entry(time, namespace)] = False

    def expect(self, first: int | None) -> None:
        """Set a lower bound of the first stored timer's time; None if there is none."""
        self._stored = first

    def pop(self, until: int, key_groups: KeyGroupRange) -> Timer | None:
        """Remove and return the first timer that is due until then, None if there is none."""
        self._read(until, key_groups)
        heap, changes = self._heap, self._changes
        while heap and heap[0][0] <= until:
            time, entry = heapq.heappop(heap)
            if changes.get(entry):
                changes[entry] = False
                return _opened(time, entry)
        return None

    def first(self, key_groups: KeyGroupRange) -> int | None:
        """Return a lower bound of the first remaining timer's time."""
        heap, changes = self._heap, self._changes
        while heap and not changes.get(heap[0][1]):
            heapq.heappop(heap)
        found = [heap[0][0]] if heap else []
        if self._stored is not None and self._read_to is None:
            found.append(self._stored)
        elif self._stored is not None:
            found += self._firsts(key_groups)
        return min(found, default=None)

    def clear(self) -> None:
        """Not supported: timers are deleted one by one."""
        raise NotImplementedError

    def grow(self, count: int) -> None:  # noqa: D102
        pass

    def take_changes(self, delta: Delta) -> None:  # noqa: D102
        prefix = self._prefix
        for entry in sorted(self._changes):
            if self._changes[entry]:
                delta.keys.append(prefix + entry)
                delta.values.append(b"")
            else:
                delta.deletes.append(prefix + entry)

    def _reset(self, count: int) -> None:
        self._changes = {}
        self._heap = []
        self._stored = self._read_to = None

    def _entry(self, time: int, namespace: bytes) -> bytes:
        context = self._context
        routed = context.routed[context.current]
        return routed[:2] + _LENGTH + _TIME.pack(time + _BIAS) + routed[2:] + namespace

    def _read(self, until: int, key_groups: KeyGroupRange) -> None:
        """Read all stored timers up to a time into the heap."""
        if self._stored is None or self._stored > until:
            return
        if self._read_to is not None and self._read_to >= until:
            return
        for time, entry in self._between(self._read_to, until, key_groups):
            if entry not in self._changes:
                self._changes[entry] = True
                self._heap.append((time, entry))
        self._read_to = until
        heapq.heapify(self._heap)

    def _between(
        self, after: int | None, until: int, key_groups: KeyGroupRange
    ) -> Iterator[tuple[int, bytes]]:
        start = b"" if after is None else _LENGTH + _TIME.pack(after + 1 + _BIAS)
        last = _LENGTH + _TIME.pack(until + _BIAS)
        scan = self._context.store.scan_between
        for prefix in self._groups(key_groups):
            for key, _ in scan(prefix + start, _after(prefix + last)):
                yield time_of(key[2:]), key[2:]

    def _firsts(self, key_groups: KeyGroupRange) -> Iterator[int]:
        """Iterate over the times of each key group's first remaining stored timer."""
        if self._read_to == MAX_WATERMARK:
            return
        read = self._read_to
        start = b"" if read is None else _LENGTH + _TIME.pack(read + 1 + _BIAS)
        for prefix in self._groups(key_groups):
            for key, _ in self._context.store.scan_between(prefix + start, _after(prefix)):
                if self._changes.get(key[2:], True):
                    yield time_of(key[2:])
                    break

    def _groups(self, key_groups: KeyGroupRange) -> Iterator[bytes]:
        """Iterate over the prefixes of the key groups that have stored entries."""
        stop = self._prefix + key_groups.stop.to_bytes(2, "big")
        start = self._prefix + key_groups.start.to_bytes(2, "big")
        while start < stop:
            found = next(iter(self._context.store.scan_between(start, stop)), None)
            if found is None:
                return
            prefix = found[0][:4]
            yield prefix
            start = _after(prefix)


def time_of(entry: bytes) -> int:
    """Return the time of an entry."""
    (biased,) = _TIME.unpack_from(entry, _AT)
    return int(biased) - _BIAS


def _opened(time: int, entry: bytes) -> Timer:
    routed = entry[:2] + entry[_KEY_AT:]
    end = end_of_key(routed)
    return time, routed[:end], routed[end:]


def _after(prefix: bytes) -> bytes:
    end = end_of_prefix(prefix)
    assert end is not None
    return end
