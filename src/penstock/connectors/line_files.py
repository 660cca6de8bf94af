"""Files of lines, plain or compressed, read in blocks of whole lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from penstock.connectors.line_blocks import blocks_of_lines
from penstock.errors import ChangedFileError

__all__ = ["first_lines", "is_compressed", "line_number", "open_lines", "read_blocks"]

_DECOMPRESSORS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
_LINE_END = re.compile(rb"\r\n|\n|\r")
_HEAD_BYTES = 1 << 16
_COUNTED_AT_ONCE = 1 << 20


def is_compressed(path: Path) -> bool:
    """Tell from a file's name whether it is compressed, and cannot be cut."""
    return path.suffix in _DECOMPRESSORS


def open_lines(path: Path) -> BinaryIO:
    """Open a file for its bytes as they are when not compressed."""
    decompress = _DECOMPRESSORS.get(path.suffix)
    # Unbuffered: blocks are larger than any buffer would be.
    return cast(BinaryIO, decompress(path) if decompress else path.open("rb", buffering=0))


def read_blocks(path: Path, start: int, end: int, *, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """Give the lines that start in a range, with offsets; all lines of a compressed file.

    What lies before ``begin`` is left out.
    """
    if is_compressed(path):
        with open_lines(path) as file:
            yield from blocks_of_lines(file, begin, None)
        return
    size = path.stat().st_size
    if size < end:
        raise ChangedFileError(str(path), end, size)
    with open_lines(path) as file:
        yield from blocks_of_lines(file, max(start, begin), end)


def first_lines(path: Path, count: int) -> tuple[list[bytes], int]:
    """Give the first lines of a file, without their ends, and the offset behind them."""
    data = b""
    with open_lines(path) as file:
        while True:
            more = file.read(_HEAD_BYTES)
            data += more
            ends = [found.span() for found in _LINE_END.finditer(data)]
            # A carriage return that ends the data may be half of a line end.
            if not more or (len(ends) >= count and ends[count - 1][1] < len(data)):
                break
    starts = [0, *(end for _, end in ends)]
    if len(ends) < count:
        rest = [data[starts[-1] :]] if starts[-1] < len(data) else []
        return [data[a:b] for a, (b, _) in zip(starts, ends, strict=False)] + rest, len(data)
    return [data[a:b] for a, (b, _) in zip(starts, ends[:count], strict=False)], starts[count]


def line_number(path: Path, offset: int) -> int:
    """Count which line starts at an offset, the first being 1; slow, for messages."""
    count, last = 1, b""
    with open_lines(path) as file:
        while offset > 0 and (data := file.read(min(_COUNTED_AT_ONCE, offset))):
            offset -= len(data)
            # A line feed behind a carriage return ends the same line.
            halves = last == b"\r" and data.startswith(b"\n")
            count += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") - halves
            last = data[-1:]
    return count
