r"""Reads files of lines, plain or compressed, in blocks of whole lines.

A file may be divided into ranges at any byte: a line belongs to the range of its first byte,
wherever it ends. Lines end as in Java, with ``\n``, ``\r\n`` or ``\r``; the last one may also end
with the file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, BinaryIO

import numpy as np

from penstock.common.storage_url import Location
from penstock.connectors.formats.input_file import InputFile

_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
# Measured best between 512 KiB and 2 MiB: larger blocks do not fit the processor's cache.
_BLOCK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_LINE_FEED = ord("\n")
_CARRIAGE_RETURN = ord("\r")


def is_compressed(path: Location) -> bool:
    """Whether a file's name says that it is compressed, and so cannot be divided."""
    return path.suffix in _DECOMPRESSORS


class LineTooLongError(ValueError):
    """A line above the limit, found before all of it was read."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the line at byte {offset} is too long")
        self.offset = offset


def read_blocks(
    file: InputFile, start: int, end: int, *, begin: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that start in a range, with offsets; all lines of a compressed file.

    Everything before ``begin`` is skipped.
    """
    max_line = file.settings.max_record_bytes
    try:
        with _open(file) as data:
            if is_compressed(file.path):
                yield from line_blocks(data, begin, None, max_line)
            else:
                file.check_length(end)
                yield from line_blocks(data, max(start, begin), end, max_line)
                file.check_length(end)
    except LineTooLongError as error:
        what = f"the line at byte {error.offset} of file {file.path}"
        raise file.settings.record_too_large(what) from None


def read_whole(file: InputFile) -> bytes:
    """Return a file that cannot be read in blocks, decompressed."""
    pieces, left = [], file.settings.max_block_bytes
    with _open(file) as data:
        while piece := data.read(_BLOCK_BYTES):
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                what = f"file {file.path}, which its charset does not allow to divide,"
                raise file.settings.block_too_large(what)
    return b"".join(pieces)


def line_blocks(
    file: BinaryIO, start: int, end: int | None, max_line: int = sys.maxsize
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that start in a range, in blocks of whole lines with their offsets.

    ``end`` None stands for the end of the file. If the file ends before ``end``, the blocks just
    stop, and the caller can tell from their offsets. A line above ``max_line`` raises
    `LineTooLongError`.
    """
    for offset, block in _blocks(file, start, end, max_line):
        # Nearly always true: then no line of the block has to be measured.
        if len(block) > max_line:
            _check_lines(offset, block, max_line)
        yield offset, block


def _blocks(
    file: BinaryIO, start: int, end: int | None, max_line: int
) -> Iterator[tuple[int, bytes]]:
    position = _first_line_start(file, start, end)
    file.seek(position)
    rest = b""
    while end is None or position + len(rest) < end:
        if len(rest) > max_line:
            raise LineTooLongError(position)
        # A block grows with an unfinished line; otherwise long lines would take quadratic time.
        wanted = max(_BLOCK_BYTES, len(rest))
        if end is not None:
            wanted = min(wanted, end - position - len(rest))
        data = file.read(wanted)
        if not data:
            break
        block = rest + data
        if end is not None and position + len(block) >= end:
            yield position, block + _rest_of_line(file, position, block, max_line)
            return
        cut = _last_line_end(block)
        if cut:
            yield position, block[:cut]
        rest = block[cut:]
        position += cut
    if rest:
        yield position, rest


def normalise(block: bytes) -> bytes:
    """Return a block with every line ending in a line feed."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block if block.endswith(b"\n") else block + b"\n"


def first_lines(file: InputFile, count: int) -> tuple[list[bytes], int]:
    """Return the first lines of a file, without their ends, and the offset after them."""
    data = b""
    with _open(file) as plain:
        while True:
            more = plain.read(max(_TAIL_BYTES, len(data)))
            data += more
            lines = data.splitlines(keepends=True)
            if max(map(len, lines), default=0) > file.settings.max_record_bytes:
                what = f"a line of the header of file {file.path}"
                raise file.settings.record_too_large(what)
            # A carriage return at the end of the data may be the first half of a line end.
            if not more or len(lines) > count:
                break
    first = lines[:count]
    return [line.rstrip(b"\r\n") for line in first], sum(map(len, first))


def line_number(file: InputFile, offset: int) -> int:
    """Return the number of the line that starts at an offset, from 1; slow, for error messages."""
    count, last = 1, b""
    with _open(file) as plain:
        while offset > 0 and (data := plain.read(min(_BLOCK_BYTES, offset))):
            offset -= len(data)
            # A line feed after a carriage return ends the same line.
            halves = last == b"\r" and data.startswith(b"\n")
            count += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") - halves
            last = data[-1:]
    return count


def _open(file: InputFile) -> AbstractContextManager[BinaryIO]:
    """Return a file from its beginning, decompressed if it is compressed."""
    # Unbuffered, because blocks are larger than any buffer.
    raw = file.raw
    raw.seek(0)
    decompress = _DECOMPRESSORS.get(file.path.suffix)
    plain: AbstractContextManager[BinaryIO] = decompress(raw) if decompress else nullcontext(raw)
    return plain


def _check_lines(offset: int, block: bytes, max_line: int) -> None:
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((data == _LINE_FEED) | (data == _CARRIAGE_RETURN))
    borders = np.concatenate(([-1], ends, [len(block)]))
    lengths = np.diff(borders) - 1
    longest = int(lengths.argmax())
    if lengths[longest] > max_line:
        raise LineTooLongError(offset + int(borders[longest]) + 1)


def _first_line_start(file: BinaryIO, start: int, end: int | None) -> int:
    """Return where the first line at or after ``start`` begins; ``end`` if none does."""
    if start == 0:
        return 0
    # Only the byte before can tell whether a line starts here.
    position = start - 1
    file.seek(position)
    while end is None or position < end:
        data = file.read(_BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - position))
        if not data:
            break
        cut = _first_line_end(data)
        if cut:
            after_return = data[cut - 1] != _LINE_FEED
            following = data[cut : cut + 1] or file.read(1)
            return position + cut + (after_return and following == b"\n")
        position += len(data)
    return position if end is None else end


def _first_line_end(data: bytes) -> int:
    line_feed, carriage_return = data.find(b"\n"), data.find(b"\r")
    found = [position for position in (line_feed, carriage_return) if position >= 0]
    return min(found) + 1 if found else 0


def _last_line_end(data: bytes) -> int:
    # A carriage return at the end of the data may be the first half of a line end.
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


def _rest_of_line(file: BinaryIO, position: int, block: bytes, max_line: int) -> bytes:
    if block[-1:] in (b"\n", b"\r"):
        return b""
    pieces, length = [], 0
    while data := file.read(_TAIL_BYTES):
        cut = _first_line_end(data)
        pieces.append(data[:cut] if cut else data)
        length += len(pieces[-1])
        if cut:
            break
        if length > max_line:
            raise LineTooLongError(position + _last_line_end(block))
    return b"".join(pieces)
