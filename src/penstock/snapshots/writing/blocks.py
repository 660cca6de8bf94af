"""Blocks of entries, which go from the tasks that encode rows to those that write them.

A block has the entries of a range of key groups, a band, in one Arrow message. A shuffle then moves
few large rows, and what has to be sorted at once is one band of a subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.snapshots.writing.columns.key_bytes import subtasks_of

_BANDS = 256
_ROWS_AT_ONCE = 1 << 18
_BYTES_AT_ONCE = 1 << 26
_BYTES_IN_ARRAY = 1 << 28
"""Arrow's offsets have 31 bits: larger bands are several arrays."""


class Block(NamedTuple):
    """Entries of one band of a subtask, not sorted."""

    subtask: int
    band: int
    data: bytes


def block_schema(values: pa.DataType) -> pa.Schema:
    """Return the columns of blocks."""
    return pa.schema([pa.field("key", pa.binary()), pa.field("value", values)])


class BlockBuilder:
    """Collects entries and makes blocks of them."""

    def __init__(self, values: pa.DataType, max_parallelism: int, parallelism: int) -> None:
        self._schema = block_schema(values)
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._bands = min(max_parallelism, _BANDS)
        self._clear()

    def add(
        self, groups: npt.NDArray[np.int64], keys: pa.BinaryArray, values: pa.Array
    ) -> Iterator[Block]:
        """Add entries; iterate over blocks if there are many."""
        self._groups.append(groups)
        self._keys.append(keys)
        self._values.append(values)
        self._rows += len(groups)
        self._size += keys.nbytes + values.nbytes
        if self._rows >= _ROWS_AT_ONCE or self._size >= _BYTES_AT_ONCE:
            yield from self.finish()

    def finish(self) -> Iterator[Block]:
        """Iterate over blocks of what is left."""
        if not self._rows:
            return
        groups = np.concatenate(self._groups)
        keys, values = pa.concat_arrays(self._keys), pa.concat_arrays(self._values)
        self._clear()
        order = groups.astype(np.uint16).argsort(kind="stable")
        groups, index = groups[order], pa.array(order)
        batch = pa.RecordBatch.from_arrays(
            [keys.take(index), values.take(index)], schema=self._schema
        )
        bands = groups * self._bands // self._max_parallelism
        subtasks = subtasks_of(groups, self._max_parallelism, self._parallelism)
        changes = (np.diff(bands) != 0) | (np.diff(subtasks) != 0)
        starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(groups)]
        for start, stop in pairwise(starts):
            part = batch.slice(start, stop - start)
            data = part.serialize().to_pybytes()
            yield Block(int(subtasks[start]), int(bands[start]), data)

    def _clear(self) -> None:
        self._groups: list[npt.NDArray[np.int64]] = []
        self._keys: list[pa.BinaryArray] = []
        self._values: list[pa.Array] = []
        self._rows = self._size = 0


def sorted_entries(
    blocks: Iterable[tuple[int, pa.Buffer]], values: pa.DataType
) -> Iterator[tuple[pa.BinaryArray, pa.Array]]:
    """Iterate over the entries of a subtask in the order of their keys, band by band.

    The blocks come in the order of their bands.
    """
    schema = block_schema(values)
    band, found = -1, list[pa.RecordBatch]()
    for number, data in blocks:
        if number != band and found:
            yield from _sorted(found)
            found = []
        band = number
        found.append(pa.ipc.read_record_batch(data, schema))
    if found:
        yield from _sorted(found)


def _sorted(batches: list[pa.RecordBatch]) -> Iterator[tuple[pa.BinaryArray, pa.Array]]:
    size = sum(batch.nbytes for batch in batches)
    if size <= _BYTES_IN_ARRAY:
        keys, values = _joined(batches)
        order = pc.array_sort_indices(keys)
        yield keys.take(order), values.take(order)
        return
    order = pc.sort_indices(pa.chunked_array([batch.column(0) for batch in batches]))
    rows = max(1, _BYTES_IN_ARRAY * len(order) // size)
    stops = np.cumsum([batch.num_rows for batch in batches])
    for start in range(0, len(order), rows):
        places = order.slice(start, rows).to_numpy().astype(np.int64)
        yield _taken(batches, stops, places)


def _taken(
    batches: list[pa.RecordBatch], stops: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
) -> tuple[pa.BinaryArray, pa.Array]:
    """Return the entries at places, in this order; places count through all batches."""
    owners = np.searchsorted(stops, places, "right")
    by_batch = owners.argsort(kind="stable")
    bounds = np.searchsorted(owners[by_batch], np.arange(len(batches) + 1))
    parts = []
    for batch, stop, (first, last) in zip(batches, stops, pairwise(bounds), strict=True):
        mine = places[by_batch[first:last]] - (stop - batch.num_rows)
        parts.append(batch.take(pa.array(mine)))
    keys, values = _joined(parts)
    back = pa.array(by_batch.argsort())
    return keys.take(back), values.take(back)


def _joined(batches: list[pa.RecordBatch]) -> tuple[pa.BinaryArray, pa.Array]:
    keys, values = (pa.concat_arrays([batch.column(n) for batch in batches]) for n in range(2))
    return keys, values
