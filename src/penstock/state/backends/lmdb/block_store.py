"""A version of hashmap state, read from its base and deltas without loading all of it."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.refs import FileRef, StateLocation, StateRef
from penstock.state.backends.store import StateStore
from penstock.state.delta import BlockPlace, block_places, decode_block
from penstock.state.files import read_file
from penstock.state.merge import Overlay, overlay_of

_INDEXES_KEPT = 256
"""Blocks of a base whose entries are indexed in memory: 256 KB each at most."""


def open_blocks(location: StateLocation, ref: StateRef, files: HostFiles) -> BlockStore:
    """Open a version; what was opened before for an older one is used again.

    Raises:
        CorruptStateError: a file is missing, damaged or another one.
    """
    base = None if ref.base is None else _base(location, ref.base, files)
    deltas = [_delta(location, delta, files) for delta in ref.deltas]
    return BlockStore(ref.version, base, deltas)


def _base(location: StateLocation, ref: FileRef, files: HostFiles) -> BaseFile:
    found = files.opened.get(ref.name)
    if not isinstance(found, BaseFile):
        found = files.opened[ref.name] = BaseFile(files.get(location, ref))
    return found


def _delta(location: StateLocation, ref: FileRef, files: HostFiles) -> DeltaFile:
    found = files.opened.get(ref.name)
    if not isinstance(found, DeltaFile):
        files.get(location, ref)
        found = files.opened[ref.name] = DeltaFile(overlay_of([read_file(location, ref)]))
    return found


class DeltaFile:
    """The changes of one delta, in memory."""

    def __init__(self, changes: Overlay) -> None:
        self.changes = changes
        self._sorted: list[bytes] | None = None

    def between(self, start: bytes, stop: bytes | None) -> Sequence[bytes]:
        """Return the changed keys from ``start`` up to, not including, ``stop``."""
        if self._sorted is None:
            self._sorted = sorted(self.changes)
        keys = self._sorted
        return keys[
            bisect_left(keys, start) : len(keys) if stop is None else bisect_left(keys, stop)
        ]

    def close(self) -> None:
        """Do nothing."""


class _Index(NamedTuple):
    """Where the keys and values of a block begin and end in the file."""

    key_starts: array[int]
    key_stops: array[int]
    value_starts: array[int]
    value_stops: array[int]


class BaseFile:
    """A base, mapped into memory: a block is decoded once, to find out where its entries are.

    Any thread may read; two may decode the same block.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._blocks = list(block_places(self._data))
        self._first_keys = [block.first_key for block in self._blocks]
        self._indexes: OrderedDict[int, _Index] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        number = bisect_right(self._first_keys, key) - 1
        if number < 0:
            return None
        index = self._index(number)
        at = self._position(index, key)
        if at == len(index.key_starts) or self._key(index, at) != key:
            return None
        return self._data[index.value_starts[at] : index.value_stops[at]]

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate, ordered by key, from ``start`` up to, not including, ``stop``."""
        first = max(0, bisect_right(self._first_keys, start) - 1)
        for number in range(first, len(self._blocks)):
            index = self._index(number)
            at = self._position(index, start) if number == first else 0
            for entry in range(at, len(index.key_starts)):
                key = self._key(index, entry)
                if stop is not None and key >= stop:
                    return
                yield key, self._data[index.value_starts[entry] : index.value_stops[entry]]

    def close(self) -> None:
        """Unmap the file."""
        self._data.close()

    def _position(self, index: _Index, key: bytes) -> int:
        """Return how many keys of a block are below a key."""
        low, high = 0, len(index.key_starts)
        while low < high:
            middle = (low + high) // 2
            if self._key(index, middle) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def _key(self, index: _Index, at: int) -> bytes:
        return self._data[index.key_starts[at] : index.key_stops[at]]

    def _index(self, number: int) -> _Index:
        index = self._indexes.get(number)
        if index is None:
            index = self._indexes[number] = _indexed(self._data, self._blocks[number])
            if len(self._indexes) > _INDEXES_KEPT:
                self._indexes.popitem(last=False)
        else:
            with suppress(KeyError):  # another thread has removed it
                self._indexes.move_to_end(number)
        return index


class BlockStore(StateStore):
    """A base with the deltas after it, which override it."""

    def __init__(self, version: int, base: BaseFile | None, deltas: list[DeltaFile]) -> None:
        self.version = version
        self._base = base
        self._deltas = deltas[::-1]

    def get(self, key: bytes) -> bytes | None:
        for delta in self._deltas:
            if key in delta.changes:
                return delta.changes[key]
        return None if self._base is None else self._base.get(key)

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        changed = sorted({key for d in self._deltas for key in d.between(start, stop)})
        unchanged = iter(()) if self._base is None else self._base.scan_between(start, stop)
        at = 0
        for key, value in unchanged:
            while at < len(changed) and changed[at] < key:
                yield from self._changed(changed[at])
                at += 1
            if at < len(changed) and changed[at] == key:
                yield from self._changed(key)
                at += 1
            else:
                yield key, value
        for key in changed[at:]:
            yield from self._changed(key)

    def close(self) -> None:
        """Do nothing: the files belong to the reader."""

    def _changed(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        value = next(d.changes[key] for d in self._deltas if key in d.changes)
        if value is not None:
            yield key, value


def _indexed(data: mmap.mmap, place: BlockPlace) -> _Index:
    """Compute from the lengths of all keys and values where they are."""
    block = decode_block(data[place.start : place.stop])
    key_starts, key_stops = _places(block.keys, place.start + 1)
    values_at = int(key_stops[-1]) if block.keys else place.start + 1 + 1
    value_starts, value_stops = _places(block.values, values_at)
    arrays = [array("Q", a.tobytes()) for a in (key_starts, key_stops, value_starts, value_stops)]
    return _Index(*arrays)


def _places(items: Sequence[bytes], start: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each item begins and ends in a MessagePack array that begins there."""
    count = len(items)
    header = 1 if count < 16 else 3 if count < 1 << 16 else 5
    lengths = np.fromiter(map(len, items), np.uint64, count)
    headers = np.where(lengths < 1 << 8, 2, np.where(lengths < 1 << 16, 3, 5)).astype(np.uint64)
    stops = np.cumsum(lengths + headers, dtype=np.uint64) + np.uint64(start + header)
    return stops - lengths, stops
