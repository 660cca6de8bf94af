r"""Cutting a file of lines at any byte without losing or doubling a line.

A line belongs to the range its first byte lies in, wherever it ends. Lines end as they do in
Java: with ``\n``, ``\r\n`` or ``\r``, and the last one also with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["blocks_of_lines", "normalised"]

# Measured best between 512 KiB and 2 MiB: larger blocks leave the processor's cache.
_BLOCK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_LINE_FEED = ord("\n")
_LINE_ENDS = (_LINE_FEED, ord("\r"))


def blocks_of_lines(file: BinaryIO, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Give the lines that start in a range, in blocks of whole lines with their offsets.

    ``end`` None stands for the end of the file, and only then is an early end of the file
    the expected one: otherwise the blocks just stop short, and the caller can tell from their
    offsets.
    """
    position = _first_line_start(file, start, end)
    file.seek(position)
    rest = b""
    while end is None or position + len(rest) < end:
        # A block grows with the line it cannot finish, or long lines would cost their square.
        wanted = max(_BLOCK_BYTES, len(rest))
        if end is not None:
            wanted = min(wanted, end - position - len(rest))
        data = file.read(wanted)
        if not data:
            break
        block = rest + data
        if end is not None and position + len(block) >= end:
            yield position, block + _rest_of_line(file, block[-1])
            return
        cut = _last_line_end(block)
        if cut:
            yield position, block[:cut]
        rest = block[cut:]
        position += cut
    if rest:
        yield position, rest


def normalised(block: bytes) -> bytes:
    """Let every line of a block end with a line feed."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block if block.endswith(b"\n") else block + b"\n"


def _first_line_start(file: BinaryIO, start: int, end: int | None) -> int:
    """Find where the first line at or behind ``start`` begins; beyond the end if none does."""
    if start == 0:
        return 0
    # Whether a line starts here is for the byte before to say.
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
    # A carriage return that ends the data may be half of a line end.
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


def _rest_of_line(file: BinaryIO, last: int) -> bytes:
    if last in _LINE_ENDS:
        return b""
    pieces = []
    while data := file.read(_TAIL_BYTES):
        cut = _first_line_end(data)
        if cut:
            pieces.append(data[:cut])
            break
        pieces.append(data)
    return b"".join(pieces)
