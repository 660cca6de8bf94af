r"""Reads files of lines, plain or compressed, in blocks of whole lines.

A file may be divided into ranges at any byte: a line belongs to the range of its first byte,
wherever it ends. Lines end as in Java, with ``\n``, ``\r\n`` or ``\r``; the last one may also end
with the file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from penstock.connectors.formats.reader_format import check_length

_DECOMPRESSORS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
# Measured best between 512 KiB and 2 MiB: larger blocks do not fit the processor's cache.
_BLOCK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_LINE_FEED = ord("\n")


def is_compressed(path: Path) -> bool:
    """Whether a file's name says that it is compressed, and so cannot be divided."""
    return path.suffix in _DECOMPRESSORS


def open_lines(path: Path) -> BinaryIO:
    """Open a file, and decompress it if it is compressed."""
    decompress = _DECOMPRESSORS.get(path.suffix)
    # Unbuffered, because blocks are larger than any buffer.
    return cast(BinaryIO, decompress(path) if decompress else path.open("rb", buffering=0))


def read_blocks(path: Path, start: int, end: int, *, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that start in a range, with offsets; all lines of a compressed file.

    Everything before ``begin`` is skipped.
    """
    with open_lines(path) as file:
        if is_compressed(path):
            yield from line_blocks(file, begin, None)
        else:
            check_length(path, end)
            yield from line_blocks(file, max(start, begin), end)


def line_blocks(file: BinaryIO, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that start in a range, in blocks of whole lines with their offsets.

    ``end`` None stands for the end of the file. If the file ends before ``end``, the blocks just
    stop, and the caller can tell from their offsets.
    """
    position = _first_line_start(file, start, end)
    file.seek(position)
    rest = b""
    while end is None or position + len(rest) < end:
        # A block grows with an unfinished line; otherwise long lines would take quadratic time.
        wanted = max(_BLOCK_BYTES, len(rest))
        if end is not None:
            wanted = min(wanted, end - position - len(rest))
        data = file.read(wanted)
        if not data:
            break
        block = rest + data
        if end is not None and position + len(block) >= end:
            yield position, block + _rest_of_line(file, block[-1:])
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


def first_lines(path: Path, count: int) -> tuple[list[bytes], int]:
    """Return the first lines of a file, without their ends, and the offset after them."""
    data = b""
    with open_lines(path) as file:
        while True:
            more = file.read(_TAIL_BYTES)
            data += more
            lines = data.splitlines(keepends=True)
            # A carriage return at the end of the data may be the first half of a line end.
            if not more or len(lines) > count:
                break
    first = lines[:count]
    return [line.rstrip(b"\r\n") for line in first], sum(map(len, first))


def line_number(path: Path, offset: int) -> int:
    """Return the number of the line that starts at an offset, from 1; slow, for error messages."""
    count, last = 1, b""
    with open_lines(path) as file:
        while offset > 0 and (data := file.read(min(_BLOCK_BYTES, offset))):
            offset -= len(data)
            # A line feed after a carriage return ends the same line.
            halves = last == b"\r" and data.startswith(b"\n")
            count += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") - halves
            last = data[-1:]
    return count


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


def _rest_of_line(file: BinaryIO, last: bytes) -> bytes:
    if last in (b"\n", b"\r"):
        return b""
    pieces = []
    while data := file.read(_TAIL_BYTES):
        cut = _first_line_end(data)
        pieces.append(data[:cut] if cut else data)
        if cut:
            break
    return b"".join(pieces)
