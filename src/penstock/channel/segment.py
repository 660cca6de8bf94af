"""Segment files: what one task hands to the subtasks of the next stage.

A task writes one file per output channel; each consumer subtask owns some byte ranges of it,
Arrow IPC streams, which it maps into memory. The ranges travel in the acknowledgement.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from penstock.channel.columns import Columns, Layout
from penstock.errors import CorruptSegmentError

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


class SliceWriter(Protocol):
    """Takes the slices of one task for one channel, to wherever they go."""

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
        ...

    def finish(self) -> Segment | None:
        """End; return the segment file that was written, None if there is none."""
        ...


class SegmentWriter:
    """Writes one segment file; nothing is created before the first record."""

    def __init__(self, path: Path, consumers: int) -> None:
        self._path = path
        self._file: pa.NativeFile | None = None
        self._offset = 0
        self._slices: list[list[Slice]] = [[] for _ in range(consumers)]

    def write(
        self,
        consumer: int,
        columns: Columns,
        key: pa.Array | None = None,
        times: pa.Array | None = None,
    ) -> None:
        """Append records for one consumer, with their keys and event times if they have some."""
        data, rows = encode_slice(columns, key, times)
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.OSFile(str(self._path), "wb")
        self._file.write(data)
        self._slices[consumer].append(Slice(self._offset, data.size, rows, zlib.crc32(data)))
        self._offset += data.size

    def finish(self) -> Segment | None:
        """Close the file and say what is in it; None if no record was written."""
        if self._file is None:
            return None
        self._file.close()
        return Segment(self._path.name, self._offset, self._slices)


class SegmentPart:
    """One slice as its consumer sees it."""

    __slots__ = ("columns", "key", "layout", "rows", "times")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.layout = Layout(batch.schema.metadata[_LAYOUT].decode())
        self.rows: int = batch.num_rows
        names, columns = batch.schema.names, batch.columns
        self.key: pa.DictionaryArray | None = None
        self.times: pa.Array | None = None
        if names[:1] == [_KEY]:
            self.key, names, columns = columns[0], names[1:], columns[1:]
        if names[:1] == [_TIME]:
            self.times, columns = columns[0], columns[1:]
        self.columns: list[pa.Array] = columns

    def shorten(self, rows: int) -> None:
        """Leave out all but the first rows."""
        if rows < self.rows:
            self.rows = rows
            self.key = None if self.key is None else self.key.slice(0, rows)
            self.times = None if self.times is None else self.times.slice(0, rows)
            self.columns = [column.slice(0, rows) for column in self.columns]


def read_slices(path: Path, slices: list[Slice]) -> Iterator[SegmentPart]:
    """Yield the parts of a segment file, without copying them.

    Raises:
        CorruptSegmentError: the file is missing, too short, or its bytes have changed.
    """
    if not slices:
        return
    try:
        mapped = pa.memory_map(str(path)).read_buffer()
    except OSError as error:
        raise CorruptSegmentError(str(path), str(error)) from error
    for part in slices:
        if part.offset + part.length > mapped.size:
            raise CorruptSegmentError(
                str(path), f"{mapped.size} bytes where {part.offset + part.length} are needed"
            )
        data = mapped.slice(part.offset, part.length)
        if zlib.crc32(data) != part.crc:
            raise CorruptSegmentError(str(path), f"checksum differs at byte {part.offset}")
        yield decode_slice(data)


def encode_slice(
    columns: Columns, key: pa.Array | None, times: pa.Array | None = None
) -> tuple[pa.Buffer, int]:
    """Return records as the bytes of a slice, and how many they are."""
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


def decode_slice(data: pa.Buffer) -> SegmentPart:
    """Read the bytes of a slice, without copying them."""
    with pa.ipc.open_stream(data) as stream:
        return SegmentPart(stream.read_next_batch())
