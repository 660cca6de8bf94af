"""Ingestion log: a durable copy of input that its producer would not send again.

The log is a directory of segments, each named after its first record and made of blocks: a header
and up to a few thousand lines. A block counts once it is synced; only then are its records planned.
So a crash leaves at most one incomplete block after the last one that counts, and opening the log
truncates it. Any other damage is an error, and the log is left as it is.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from penstock.connectors.contracts.source import CHUNK_RECORDS
from penstock.connectors.staging.durable_files import make_directory, sync_directory
from penstock.errors import CorruptIngestionLogError, LockedIngestionLogError

_log = logging.getLogger(__name__)

_MAGIC = b"PIL1"
_FIELDS = struct.Struct("<4sIIQI")  # magic, payload bytes, lines, first record, payload crc
_CRC = struct.Struct("<I")
_HEADER_BYTES = _FIELDS.size + _CRC.size
_SUFFIX = ".segment"
_SEGMENT_BYTES = 64 << 20
# A reader reads every block header of a segment, so it must not have too many small blocks.
_SEGMENT_BLOCKS = 4096


class _Block(NamedTuple):
    size: int
    lines: int
    first: int
    crc: int


class IngestionLog:
    """The writer of a log, on the driver; a lock allows one at a time.

    Opening verifies the whole log. ``begin`` and ``end`` are the numbers of the first record in the
    log and of the next one; ``ended`` says that the input is complete. Other threads may read these
    three: they only ever describe what is synced.
    """

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = _SEGMENT_BYTES,
        segment_blocks: int = _SEGMENT_BLOCKS,
    ) -> None:
        self.directory = directory
        self.ended = False
        self._segment_bytes = segment_bytes
        self._segment_blocks = segment_blocks
        self._file: BinaryIO | None = None
        self._bytes = self._blocks = 0
        make_directory(directory)
        self._lock = _locked(directory)
        segments = _segments(directory)
        self.begin = self.end = segments[0][0] if segments else 0
        self._path = segments[-1][1] if segments else _segment_path(directory, 0)
        try:
            for first, path in segments:
                self._verify(first, path)
        except BaseException:
            self.close()
            raise

    def append(self, lines: Sequence[bytes]) -> int:
        """Append lines (without line feeds), sync them, and return the new end."""
        if self.ended:
            message = f"ingestion log {self.directory} has ended"
            raise ValueError(message)
        end = self.end
        for first in range(0, len(lines), CHUNK_RECORDS):
            block = lines[first : first + CHUNK_RECORDS]
            self._write(b"\n".join(block), len(block), end)
            end += len(block)
        self._sync()
        self.end = end
        return end

    def append_end(self) -> None:
        """Record durably that the input is complete."""
        if not self.ended:
            self._write(b"", 0, self.end)
            self._sync()
            self.ended = True

    def trim(self, position: int) -> None:
        """Delete the segments that are completely below a position."""
        for (_, path), (following, _) in pairwise(_segments(self.directory)):
            if following > position:
                break
            path.unlink()
            self.begin = following

    def close(self) -> None:
        """Close the log and release its lock."""
        try:
            self._close_segment()
        finally:
            self._lock.close()

    def _write(self, payload: bytes, count: int, first: int) -> None:
        if self._bytes >= self._segment_bytes or self._blocks >= self._segment_blocks:
            self._sync()
            self._close_segment()
            self._path = _segment_path(self.directory, first)
            self._bytes = self._blocks = 0
        if self._file is None:
            self._file = self._path.open("ab")
            sync_directory(self.directory)
        fields = _FIELDS.pack(_MAGIC, len(payload), count, first, zlib.crc32(payload))
        self._file.write(fields + _CRC.pack(zlib.crc32(fields)))
        self._file.write(payload)
        self._bytes += _HEADER_BYTES + len(payload)
        self._blocks += 1

    def _close_segment(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _sync(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def _verify(self, first: int, path: Path) -> None:
        if first != self.end:
            _fail(path, 0, f"records from {self.end} on are missing")
        data = path.read_bytes()
        self._bytes = self._blocks = 0
        while self._bytes < len(data):
            block = self._verified_block(data, path)
            if block is None:
                _truncate(path, self._bytes, len(data))
                break
            self.end += block.lines
            self.ended = block.lines == 0
            self._bytes += _HEADER_BYTES + block.size
            self._blocks += 1

    def _verified_block(self, data: bytes, path: Path) -> _Block | None:
        offset = self._bytes
        begin = offset + _HEADER_BYTES
        torn = begin > len(data) or not any(memoryview(data)[offset:])
        block = None if torn else _unpacked(data[offset:begin], offset, path)
        if block is None or begin + block.size > len(data):
            if path != self._path:
                _fail(path, offset, "a segment that is not the last one ends within a block")
            return None
        if zlib.crc32(memoryview(data)[begin : begin + block.size]) != block.crc:
            _fail(path, offset, "the checksum of the lines is wrong")
        if block.first != self.end or self.ended:
            _fail(path, offset, "the block is out of place")
        return block


def read_log(directory: Path, start: int, end: int) -> Iterator[list[str]]:
    """Yield the lines of a range of record numbers, block by block; works in any process.

    Invalid UTF-8 becomes U+FFFD, as it does when Flink reads a socket.
    """
    segments = _segments(directory)
    index = bisect_right(segments, start, key=lambda segment: segment[0]) - 1
    if index < 0:
        _fail(directory, 0, f"record {start} is missing")
    for _, path in segments[index:]:
        if start >= end:
            return
        offset = 0
        with path.open("rb") as file:
            # Nothing beyond `end` is read, because the driver may be writing there.
            while start < end and (header := file.read(_HEADER_BYTES)):
                block = _unpacked(header, offset, path)
                if block.first + block.lines > start:
                    payload = file.read(block.size)
                    if zlib.crc32(payload) != block.crc:
                        _fail(path, offset, "the checksum of the lines is wrong")
                    lines = payload.decode("utf-8", "replace").split("\n")
                    yield lines[start - block.first : end - block.first]
                    start = block.first + block.lines
                else:
                    file.seek(block.size, os.SEEK_CUR)
                offset += _HEADER_BYTES + block.size
    if start < end:
        _fail(directory, 0, f"record {start} is missing")


def _unpacked(header: bytes, offset: int, path: Path) -> _Block:
    fields, crc = header[: _FIELDS.size], header[_FIELDS.size :]
    if len(header) < _HEADER_BYTES or _CRC.pack(zlib.crc32(fields)) != crc:
        _fail(path, offset, "the checksum of the header is wrong")
    magic, *rest = _FIELDS.unpack(fields)
    if magic != _MAGIC:
        _fail(path, offset, f"the block begins with {magic!r}")
    return _Block(*rest)


def _segments(directory: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in directory.glob(f"*{_SUFFIX}"))


def _segment_path(directory: Path, first: int) -> Path:
    return directory / f"{first:020d}{_SUFFIX}"


def _locked(directory: Path) -> BinaryIO:
    """Take the lock, which the kernel releases when its process ends in any way."""
    lock = (directory / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise LockedIngestionLogError(str(directory)) from None
    return lock


def _truncate(path: Path, offset: int, size: int) -> None:
    _log.warning(
        "Ingestion log %s ends in an incomplete block. The last %d of %d bytes, which no "
        "micro-batch has read, are truncated.",
        path,
        size - offset,
        size,
    )
    with path.open("r+b") as file:
        file.truncate(offset)
        os.fsync(file.fileno())


def _fail(path: Path, offset: int, reason: str) -> NoReturn:
    raise CorruptIngestionLogError(str(path), offset, reason)
