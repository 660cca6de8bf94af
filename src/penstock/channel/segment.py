"""Segment files: the records that one task writes for the subtasks of the next stage.

A task writes one file per output channel; each consumer subtask reads some byte ranges of it,
Arrow IPC streams, which it maps into memory. The acknowledgement of the task holds the ranges.
Hosts that share no directory write them as objects of a store.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.channel.columns import Columns, RecordLayout
from penstock.common.new_files import naming
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import CorruptSegmentError
from penstock.storage.storages import storage_at

_LAYOUT = b"penstock.layout"
_KEY = "key"
_TIME = "time"


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """A byte range of a segment file that belongs to one consumer subtask."""

    offset: int
    length: int
    rows: int
    crc: int


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A written segment file: its name, and for each consumer subtask its slices."""

    name: str
    size: int
    slices: list[list[Slice]]

    @property
    def rows(self) -> int:
        """How many records the file holds, for all consumers together."""
        return sum(s.rows for part in self.slices for s in part)


class SliceWriter(ABC):
    """Writes the slices of one task for one channel."""

    size = 0
    """How many bytes have been written."""

    def write(
        self,
        consumer: int,
        columns: Columns,
        key: pa.Array | None = None,
        times: pa.Array | None = None,
    ) -> None:
        """Append records for one consumer.

        With their dictionary-encoded keys if keyed, and their event times if they have some.
        """
        for part in _parts(columns, key, times):
            data, rows = encode_slice(*part)
            self.size += data.size
            self._append(consumer, data, rows)

    @abstractmethod
    def _append(self, consumer: int, data: pa.Buffer, rows: int) -> None:
        """Append an encoded slice."""

    @abstractmethod
    def finish(self) -> Segment | None:
        """Close; return the segment file that was written, None if there is none."""


class SegmentWriter(SliceWriter):
    """Writes one segment, a file or an object of a store; it exists if there is a record."""

    def __init__(self, place: Location, consumers: int) -> None:
        self._name = place.name
        self._output = _Object(place) if isinstance(place, StorageUrl) else _File(place)
        self._offset = 0
        self._slices: list[list[Slice]] = [[] for _ in range(consumers)]

    def _append(self, consumer: int, data: pa.Buffer, rows: int) -> None:
        self._output.write(data)
        self._slices[consumer].append(Slice(self._offset, data.size, rows, zlib.crc32(data)))
        self._offset += data.size

    def finish(self) -> Segment | None:
        """Close the file; return its description, None if no record was written."""
        if not self._offset:
            return None
        self._output.close()
        return Segment(self._name, self._offset, self._slices)


class _File:
    """A file that is created with its first bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: pa.NativeFile | None = None

    def write(self, data: pa.Buffer) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.OSFile(str(self._path), "wb")
        with naming(self._path):
            self._file.write(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Object:
    """An object that is written when it is complete."""

    def __init__(self, place: StorageUrl) -> None:
        self._place = place
        self._pieces: list[bytes] = []

    def write(self, data: pa.Buffer) -> None:
        self._pieces.append(data.to_pybytes())

    def close(self) -> None:
        storage_at(self._place.parent).write(self._place.name, self._pieces)


class DecodedSlice:
    """The records of one slice, as columns."""

    __slots__ = ("columns", "key", "layout", "rows", "times")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.layout = RecordLayout(batch.schema.metadata[_LAYOUT].decode())
        self.rows: int = batch.num_rows
        names, columns = batch.schema.names, batch.columns
        self.key: pa.DictionaryArray | None = None
        self.times: pa.Array | None = None
        if names[:1] == [_KEY]:
            self.key, names, columns = columns[0], names[1:], columns[1:]
        if names[:1] == [_TIME]:
            self.times, columns = columns[0], columns[1:]
        self.columns: list[pa.Array] = columns

    def truncate(self, rows: int) -> None:
        """Keep only the first rows."""
        if rows < self.rows:
            self.rows = rows
            self.key = None if self.key is None else self.key.slice(0, rows)
            self.times = None if self.times is None else self.times.slice(0, rows)
            self.columns = [column.slice(0, rows) for column in self.columns]


def read_slices(place: Location, slices: list[Slice]) -> Iterator[DecodedSlice]:
    """Yield some slices of a segment, without copying those of a file.

    Raises:
        CorruptSegmentError: it is missing, too short, or its bytes have changed.
    """
    if not slices:
        return
    read = _ranges_of(place)
    for part in slices:
        data = read(part)
        if data.size < part.length:
            missing = part.offset + part.length
            raise CorruptSegmentError(str(place), f"it ends before byte {missing}")
        if zlib.crc32(data) != part.crc:
            raise CorruptSegmentError(str(place), f"checksum differs at byte {part.offset}")
        yield decode_slice(data)


def _ranges_of(place: Location) -> Callable[[Slice], pa.Buffer]:
    """Return a function that reads a slice; what it returns may be too short."""
    if isinstance(place, StorageUrl):
        storage = storage_at(place.parent)

        def fetch(part: Slice) -> pa.Buffer:
            try:
                with storage.open(place.name, part.offset, part.length) as file:
                    return pa.py_buffer(file.read())
            except FileNotFoundError as error:
                raise CorruptSegmentError(str(place), str(error)) from error

        return fetch
    try:
        mapped = pa.memory_map(str(place)).read_buffer()
    except OSError as error:
        raise CorruptSegmentError(str(place), str(error)) from error

    def cut(part: Slice) -> pa.Buffer:
        start = min(part.offset, mapped.size)
        return mapped.slice(start, min(part.length, mapped.size - start))

    return cut


def _parts(
    columns: Columns, key: pa.Array | None, times: pa.Array | None
) -> Iterator[tuple[Columns, pa.Array | None, pa.Array | None]]:
    """Divide records so that no column is chunked, which Arrow does with columns above 2 GB."""
    layout, arrays = columns
    if not any(isinstance(array, pa.ChunkedArray) for array in arrays):
        yield columns, key, times
        return
    start = 0
    for batch in pa.table(arrays, names=list(map(str, range(len(arrays))))).to_batches():
        rows = batch.num_rows
        yield (
            (layout, batch.columns),
            None if key is None else key.slice(start, rows),
            None if times is None else times.slice(start, rows),
        )
        start += rows


def encode_slice(
    columns: Columns, key: pa.Array | None, times: pa.Array | None = None
) -> tuple[pa.Buffer, int]:
    """Return records encoded as a slice, and their number."""
    layout, arrays = columns
    names = [f"v{i}" for i in range(len(arrays))]
    if times is not None:
        arrays, names = [times, *arrays], [_TIME, *names]
    if key is not None:
        arrays, names = [key, *arrays], [_KEY, *names]
    batch = pa.record_batch(arrays, names=names)
    batch = batch.replace_schema_metadata({_LAYOUT: layout.value.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue(), batch.num_rows


def decode_slice(data: pa.Buffer) -> DecodedSlice:
    """Decode a slice, without copying its bytes."""
    with pa.ipc.open_stream(data) as stream:
        return DecodedSlice(stream.read_next_batch())
