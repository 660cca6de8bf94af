"""A version of hashmap state, read from its base and deltas without loading all of it."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import mmap
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.refs import FileRef, StateLocation, StateRef
from penstock.state.backends.store import StateStore
from penstock.state.delta import Block, BlockPlace, block_places, decode_block

_INDEXES_KEPT = 256
"""Blocks of a base whose entries are indexed in memory: 256 KB each at most."""


def open_blocks(
    location: StateLocation, ref: StateRef, files: HostFiles, store: StateStore | None = None
) -> BlockStore:
    """Open a version; what was opened before for an older one is used again.

    With `store` that is the base; it is closed with the version.

    Raises:
        CorruptStateError: a file is missing, damaged or another one.
    """
    base = store if ref.base is None else _base(location, ref.base, files)
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
        found = files.opened[ref.name] = DeltaFile(files.get(location, ref))
    return found


class _Changes(NamedTuple):
    """A block of a delta."""

    keys: tuple[bytes, ...]
    """In order; a tuple, because garbage collections do not look into it."""
    values: dict[bytes, bytes]


_UNCHANGED = object()


class DeltaFile:
    """The changes of one delta, mapped into memory; any thread may read.

    A block is decoded when it is first needed: to decode all of a large delta at once would keep
    other threads waiting.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        places = list(block_places(self._data))
        self._puts = [place for place in places if place.first_key]
        self._deletes = [place for place in places if not place.first_key]
        self.first_keys = [place.first_key for place in self._puts]
        self._decoded: dict[int, _Changes] = {}
        self._scanned: tuple[int, _Changes | None] = (-1, None)
        self._deleted: tuple[list[bytes], frozenset[bytes]] | None = None

    def get(self, key: bytes) -> object:
        """Return the new value of a key, None if it is deleted, `_UNCHANGED` if neither."""
        number = bisect_right(self.first_keys, key) - 1
        if number >= 0:
            value = self._block(number).values.get(key)
            if value is not None:
                return value
        return None if self._deletes and key in self._all_deleted()[1] else _UNCHANGED

    def between(
        self, start: bytes, stop: bytes | None
    ) -> Iterator[tuple[Sequence[bytes], Mapping[bytes, bytes] | None]]:
        """Iterate over changed keys from ``start`` up to, not including, ``stop``, by block.

        With each block come its values, None if its keys are deleted; later ones override.
        """
        if self._deletes:
            yield _slice(self._all_deleted()[0], start, stop), None
        first = max(0, bisect_right(self.first_keys, start) - 1)
        last = len(self._puts) if stop is None else bisect_left(self.first_keys, stop)
        for number in range(first, last):
            block = self._scanned_block(number)
            yield _slice(block.keys, start, stop), block.values

    def prepare(self) -> None:
        """Decode all blocks, one by one."""
        for number in range(len(self._puts)):
            if number not in self._decoded:
                with _sharing_time():
                    self._block(number)
        if self._deletes:
            self._all_deleted()

    def close(self) -> None:
        """Unmap the file, and free memory in small steps."""
        self._data.close()
        self._scanned = (-1, None)
        while self._decoded:
            with _sharing_time():
                self._decoded.popitem()

    def _block(self, number: int) -> _Changes:
        found = self._decoded.get(number)
        if found is None:
            found = self._decoded[number] = self._changes(number)
        return found

    def _scanned_block(self, number: int) -> _Changes:
        """Return a block that is kept only until the next one: scans of all would keep all."""
        last, found = self._scanned
        if last != number:
            found = self._decoded.get(number) or self._changes(number)
            self._scanned = number, found
        assert found is not None
        return found

    def _changes(self, number: int) -> _Changes:
        block = self._decode(self._puts[number])
        return _Changes(tuple(block.keys), dict(zip(block.keys, block.values, strict=True)))

    def _all_deleted(self) -> tuple[list[bytes], frozenset[bytes]]:
        if self._deleted is None:
            keys = sorted(key for place in self._deletes for key in self._decode(place).deletes)
            self._deleted = keys, frozenset(keys)
        return self._deleted

    def _decode(self, place: BlockPlace) -> Block:
        return decode_block(self._data[place.start : place.stop])


@contextmanager
def _sharing_time() -> Iterator[None]:
    """Leave twice the time to other threads that this one needs: it holds Python's lock."""
    began = time.perf_counter()
    yield
    time.sleep(2 * (time.perf_counter() - began))


def _slice(keys: Sequence[bytes], start: bytes, stop: bytes | None) -> Sequence[bytes]:
    """Return the part of sorted keys from ``start`` up to, not including, ``stop``."""
    low = bisect_left(keys, start)
    return keys[low : len(keys) if stop is None else bisect_left(keys, stop)]


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
        self.first_keys = [block.first_key for block in self._blocks]
        self._indexes: OrderedDict[int, _Index] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        number = bisect_right(self.first_keys, key) - 1
        if number < 0:
            return None
        index = self._index(number)
        at = self._position(index, key)
        if at == len(index.key_starts) or self._key(index, at) != key:
            return None
        return self._data[index.value_starts[at] : index.value_stops[at]]

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate, ordered by key, from ``start`` up to, not including, ``stop``."""
        first = max(0, bisect_right(self.first_keys, start) - 1)
        for number in range(first, len(self._blocks)):
            index = self._index(number)
            at = self._position(index, start) if number == first else 0
            for entry in range(at, len(index.key_starts)):
                key = self._key(index, entry)
                if stop is not None and key >= stop:
                    return
                yield key, self._data[index.value_starts[entry] : index.value_stops[entry]]

    def prepare(self) -> None:
        """Index all blocks, one by one."""
        for number in range(min(len(self._blocks), _INDEXES_KEPT)):
            if number not in self._indexes:
                with _sharing_time():
                    self._index(number)

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

    def __init__(
        self, version: int, base: BaseFile | StateStore | None, deltas: list[DeltaFile]
    ) -> None:
        self.version = version
        self._base = base
        self._deltas = deltas[::-1]

    def get(self, key: bytes) -> bytes | None:
        for delta in self._deltas:
            value = delta.get(key)
            if value is not _UNCHANGED:
                return value  # type: ignore[return-value]
        return None if self._base is None else self._base.get(key)

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        for low, high in self._windows(start, stop):
            yield from self._scan_window(low, high)

    def _windows(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Divide a range so that a reader of its beginning does not wait for all of it."""
        divided = [delta.first_keys for delta in self._deltas]
        if isinstance(self._base, BaseFile):
            divided.append(self._base.first_keys)
        bounds = max(divided, key=len, default=[])
        first = bisect_right(bounds, start)
        last = len(bounds) if stop is None else bisect_left(bounds, stop)
        inner = bounds[first:last]
        return pairwise([start, *inner, stop])  # type: ignore[list-item]

    def _scan_window(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        overlay: dict[bytes, bytes | None] = {}
        for delta in reversed(self._deltas):
            for keys, values in delta.between(start, stop):
                found: Iterable[bytes | None] = repeat(None)
                if values is not None:
                    found = map(values.__getitem__, keys)
                overlay.update(zip(keys, found, strict=False))
        changed = sorted(overlay)
        unchanged = iter(()) if self._base is None else self._base.scan_between(start, stop)
        at = 0
        for key, value in unchanged:
            while at < len(changed) and changed[at] <= key:
                new = overlay[changed[at]]
                if new is not None:
                    yield changed[at], new
                at += 1
            if key not in overlay:
                yield key, value
        for key in changed[at:]:
            new = overlay[key]
            if new is not None:
                yield key, new

    def prepare(self) -> None:
        for file in (self._base, *self._deltas):
            if file is not None:
                file.prepare()

    def close(self) -> None:
        """Close the base if it is a store of this version; other files belong to the reader."""
        if isinstance(self._base, StateStore):
            self._base.close()


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
