"""Ingestion log: a durable copy of input that its producer would not send again.

The log is a directory of segments, each named after its first record and made of blocks: a header
and up to a few thousand lines. A block counts once it is synced; only then are its records planned.
So a crash leaves at most one incomplete block after the last one that counts, which is ignored. Any
other damage is an error, and the log is left as it is. Each driver that opens the log appends to
segments of its own (`generations.py`).
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from penstock.connectors.contracts.source import CHUNK_RECORDS
from penstock.connectors.socket import generations
from penstock.connectors.socket.generations import Generation, Owner, Segment, fail
from penstock.storage.durable_files import make_directory, sync_directory, sync_file

_log = logging.getLogger(__name__)

_MAGIC = b"PIL1"
_FIELDS = struct.Struct("<4sIIQI")  # magic, payload bytes, lines, first record, payload crc
_CRC = struct.Struct("<I")
_HEADER_BYTES = _FIELDS.size + _CRC.size
_SEGMENT_BYTES = 64 << 20
# A reader reads every block header of a segment, so it must not have too many small blocks.
_SEGMENT_BLOCKS = 4096


class _Block(NamedTuple):
    size: int
    lines: int
    first: int
    crc: int


class IngestionLog:
    """The writer of a log, on the driver: the last one that opened it.

    Opening verifies the whole log. ``begin`` and ``end`` are the numbers of the first record in the
    log and of the next one; ``ended`` says that the input is complete. Other threads may read these
    three: they only ever describe what is synced. ``path`` is what tasks read the log by.
    """

    def __init__(
        self,
        directory: Path,
        owner: Owner | None = None,
        *,
        segment_bytes: int = _SEGMENT_BYTES,
        segment_blocks: int = _SEGMENT_BLOCKS,
    ) -> None:
        """Open a log for appending; an owner may take it over from an earlier attempt.

        Raises:
            CorruptIngestionLogError: it is damaged.
            LockedIngestionLogError: another job has it open.
            FencedError: a later attempt has opened it.
        """
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._segment_blocks = segment_blocks
        self._file: BinaryIO | None = None
        self._bytes = self._blocks = 0
        make_directory(directory)
        lock = None
        while lock is None:
            newest = generations.newest(directory)
            generations.check_may_follow(directory, newest, owner or Owner())
            inherited = _inherit(directory, newest, owner or Owner())
            lock = generations.create(directory, newest + 1, inherited)
        self._lock = lock
        self._number, self._inherited = newest + 1, inherited
        self.path = generations.path_of(directory, self._number)
        self.end, self.ended = inherited.end, inherited.ended
        self.begin = inherited.segments[0].first if inherited.segments else inherited.end
        self._segment = generations.segment_path(directory, self.end, self._number)
        generations.remove_older(directory, self._number, inherited)

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
        segments = generations.segments_of(self.directory, self._number, self._inherited)
        for segment, following in pairwise(segments):
            if following.first > position:
                break
            segment.path.unlink(missing_ok=True)
            self.begin = following.first

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
            self._segment = generations.segment_path(self.directory, first, self._number)
            self._bytes = self._blocks = 0
        if self._file is None:
            self._file = self._segment.open("ab")
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


def read_log(path: Path, start: int, end: int) -> Iterator[list[str]]:
    """Yield the lines of a range of record numbers, block by block; works in any process.

    ``path`` is that of the open log. Invalid UTF-8 becomes U+FFFD, as it does when Flink reads a
    socket.
    """
    directory, number = path.parent, generations.number_of(path)
    inherited = generations.read(directory, number)
    for segment in generations.segments_of(directory, number, inherited):
        if start >= end or segment.first > start:
            break
        if segment.end is not None and segment.end <= start:
            continue
        # Nothing beyond `end` is read, because the driver may be writing there; and nothing beyond
        # that of the segment, because a driver that was replaced may be writing there.
        last = end if segment.end is None else min(end, segment.end)
        with segment.path.open("rb") as file:
            offset = 0
            while start < last and (header := file.read(_HEADER_BYTES)):
                block = _unpacked(header, offset, segment.path)
                if block.first + block.lines > start:
                    payload = file.read(block.size)
                    if zlib.crc32(payload) != block.crc:
                        fail(segment.path, offset, "the checksum of the lines is wrong")
                    lines = payload.decode("utf-8", "replace").split("\n")
                    yield lines[start - block.first : end - block.first]
                    start = block.first + block.lines
                else:
                    file.seek(block.size, os.SEEK_CUR)
                offset += _HEADER_BYTES + block.size
    if start < end:
        fail(directory, 0, f"record {start} is missing")


def _inherit(directory: Path, number: int, owner: Owner) -> Generation:
    """Verify the log as of a generation, and return what the next one inherits.

    The driver of that generation may still be appending: what it appends from now on is left out.
    """
    before = generations.read(directory, number)
    segments = generations.segments_of(directory, number, before)
    end, ended = (segments[0].first if segments else before.end), before.ended
    inherited: list[generations.InheritedSegment] = []
    for segment in segments:
        if segment.first != end or not segment.path.exists():
            fail(segment.path, 0, f"records from {end} on are missing")
        end, has_end = _verify(segment, is_last=segment is segments[-1])
        ended = ended or has_end
        if end > segment.first:
            name = segment.path.name
            inherited.append(generations.InheritedSegment(name, segment.first, end))
    if segments and segments[-1].end is None:
        # Its driver may not have synced everything that can be read.
        sync_file(segments[-1].path)
    return Generation(owner.job_instance, owner.attempt, inherited, end, ended)


def _verify(segment: Segment, *, is_last: bool) -> tuple[int, bool]:
    """Verify a segment; return the number of the next record, and whether the input ends there.

    Only the last segment may end in an incomplete block, which is ignored.
    """
    path, data = segment.path, segment.path.read_bytes()
    offset, end, ended = 0, segment.first, False
    while offset < len(data) and (segment.end is None or end < segment.end):
        begin = offset + _HEADER_BYTES
        torn = begin > len(data) or not any(memoryview(data)[offset:])
        block = None if torn else _unpacked(data[offset:begin], offset, path)
        if block is None or begin + block.size > len(data):
            if not is_last or segment.end is not None:
                fail(path, offset, "a segment that is not the last one ends within a block")
            _warn_of_rest(path, offset, len(data))
            break
        if zlib.crc32(memoryview(data)[begin : begin + block.size]) != block.crc:
            fail(path, offset, "the checksum of the lines is wrong")
        if block.first != end or ended:
            fail(path, offset, "the block is out of place")
        end += block.lines
        ended = block.lines == 0
        offset = begin + block.size
    if segment.end is not None and end != segment.end:
        fail(path, offset, f"records from {end} on are missing")
    return end, ended


def _unpacked(header: bytes, offset: int, path: Path) -> _Block:
    fields, crc = header[: _FIELDS.size], header[_FIELDS.size :]
    if len(header) < _HEADER_BYTES or _CRC.pack(zlib.crc32(fields)) != crc:
        fail(path, offset, "the checksum of the header is wrong")
    magic, *rest = _FIELDS.unpack(fields)
    if magic != _MAGIC:
        fail(path, offset, f"the block begins with {magic!r}")
    return _Block(*rest)


def _warn_of_rest(path: Path, offset: int, size: int) -> None:
    _log.warning(
        "Ingestion log %s ends in an incomplete block. The last %d of %d bytes, which no "
        "micro-batch has read, are ignored.",
        path,
        size - offset,
        size,
    )
