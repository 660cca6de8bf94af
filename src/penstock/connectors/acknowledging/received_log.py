"""The log of received messages of one attempt, which the tasks read.

It is a directory of segments, each named after its first record and made of blocks. A segment is
closed after each block, so that other hosts see it, and never synced: the broker redelivers what a
crash loses, since nothing in it is acknowledged.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from penstock.connectors.contracts.input_settings import DEFAULT_INPUT_SETTINGS, InputSettings
from penstock.connectors.contracts.source import CHUNK_RECORDS
from penstock.errors import LostReceivedRecordsError

_HEADER = struct.Struct("<IIQI")  # payload bytes, records, first record, crc
_LENGTH = struct.Struct("<I")
_SUFFIX = ".received"
_SEGMENT_BYTES = 64 << 20
_SEGMENT_BLOCKS = 1024
_BLOCK_BYTES = 16 << 20


class ReceivedLog:
    """Writes the log, on the driver; ``end`` is the number of the next record.

    :meth:`append` and :meth:`trim` may be called by different threads.
    """

    def __init__(
        self,
        directory: Path,
        settings: InputSettings = DEFAULT_INPUT_SETTINGS,
        *,
        segment_bytes: int = _SEGMENT_BYTES,
    ) -> None:
        self.directory = directory
        self._settings = settings
        self.end = 0
        self._segment_bytes = segment_bytes
        self._path = _segment_path(directory, 0)
        self._bytes = self._blocks = 0
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)

    def append(self, payloads: Sequence[bytes]) -> int:
        """Append records and return the new end; they may be read once this has returned.

        Raises:
            InputTooLargeError: for a record above the limit; none of them is appended.
        """
        largest = max(map(len, payloads), default=0)
        if largest > self._settings.max_record_bytes:
            start = next(p for p in payloads if len(p) == largest)[:40]
            what = f"a message of {largest} bytes, which begins with {start!r},"
            raise self._settings.record_too_large(what)
        end = self.end
        for block in _blocks(payloads):
            self._write(block, end)
            end += len(block)
        self.end = end
        return end

    def trim(self, position: int) -> None:
        """Delete the segments that end before a position."""
        for (_, path), (following, _) in pairwise(_segments(self.directory)):
            if following > position:
                break
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the log."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write(self, payloads: Sequence[bytes], first: int) -> None:
        if self._bytes >= self._segment_bytes or self._blocks >= _SEGMENT_BLOCKS:
            self._path = _segment_path(self.directory, first)
            self._bytes = self._blocks = 0
        data = b"".join(part for p in payloads for part in (_LENGTH.pack(len(p)), p))
        with self._path.open("ab") as file:
            file.write(_HEADER.pack(len(data), len(payloads), first, zlib.crc32(data)) + data)
        self._bytes += _HEADER.size + len(data)
        self._blocks += 1


def read_received(directory: Path, start: int, end: int) -> Iterator[list[bytes]]:
    """Yield the payloads of a range of record numbers, block by block, in any process."""
    segments = _segments(directory)
    index = bisect_right(segments, start, key=lambda segment: segment[0]) - 1
    for _, path in segments[max(index, 0) :]:
        if start >= end:
            return
        with path.open("rb") as file:
            # Nothing after `end` is read: the driver may be writing there.
            while start < end and (header := file.read(_HEADER.size)):
                if len(header) < _HEADER.size:
                    _refuse(path, "it ends within a header")
                size, records, first, crc = _HEADER.unpack(header)
                if first + records <= start:
                    file.seek(size, os.SEEK_CUR)
                    continue
                data = file.read(size)
                if zlib.crc32(data) != crc:
                    _refuse(path, f"the checksum of the records from {first} on is wrong")
                if first > start:
                    _refuse(path, f"record {start} is missing")
                yield _split(data)[start - first : end - first]
                start = first + records
    if start < end:
        _refuse(directory, f"record {start} is missing")


def _split(data: bytes) -> list[bytes]:
    payloads, offset = [], 0
    while offset < len(data):
        begin = offset + _LENGTH.size
        offset = begin + _LENGTH.unpack_from(data, offset)[0]
        payloads.append(data[begin:offset])
    return payloads


def _blocks(payloads: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    first = size = 0
    for index, payload in enumerate(payloads):
        if index > first and (size + len(payload) > _BLOCK_BYTES or index - first >= CHUNK_RECORDS):
            yield payloads[first:index]
            first, size = index, 0
        size += len(payload)
    if first < len(payloads):
        yield payloads[first:]


def _segments(directory: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in directory.glob(f"*{_SUFFIX}"))


def _segment_path(directory: Path, first: int) -> Path:
    return directory / f"{first:020d}{_SUFFIX}"


def _refuse(path: Path, reason: str) -> NoReturn:
    raise LostReceivedRecordsError(str(path), reason)
