"""Divides the content of a file, given as objects, into the parts of a multipart upload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LEAST_BYTES = 5 << 20
"""The size that every part but the last one has at least."""
READ_BYTES = 8 << 20
"""The size of parts that are put together from small objects."""
_COPY_BYTES = 64 << 20
"""The size that a part has at most: the store may be silent until it has copied it."""
_MOST_PARTS = 10_000
"""How many an upload may have. Very large files have larger parts, so that these are enough."""


class Segment(NamedTuple):
    """Some bytes of one of the objects."""

    source: int
    start: int
    end: int


def divide(sizes: Sequence[int], most: int = _COPY_BYTES) -> list[list[Segment]]:
    """Return parts, each with the segments that are its content one after the other.

    A part of one segment is copied by the store, the segments of other parts are read.
    """
    # The last part may be smaller.
    least = max(LEAST_BYTES, -(-sum(sizes) // (_MOST_PARTS - 1)))
    most = max(most, 2 * least)
    parts: list[list[Segment]] = []
    segments: list[Segment] = []
    waiting = 0
    for source, size in enumerate(sizes):
        start = 0
        while start < size:
            rest = size - start
            if waiting == 0 and rest >= least:
                length = min(rest, most)
                if 0 < rest - length < least:
                    length -= least
                parts.append([Segment(source, start, start + length)])
            else:
                # Of a large object only as much is read as the part needs.
                wanted = least if rest >= 2 * least else max(least, READ_BYTES)
                length = min(rest, max(wanted - waiting, 0))
                if length:
                    segments.append(Segment(source, start, start + length))
                waiting += length
                if waiting >= wanted:
                    parts.append(segments)
                    segments, waiting = [], 0
            start += length
    if segments or not parts:
        parts.append(segments)
    return parts


def is_copied(part: Sequence[Segment], sizes: Sequence[int]) -> bool:
    """Whether the store can copy a part: it copies ranges only of large objects."""
    if len(part) != 1:
        return False
    source, start, end = part[0]
    return end - start == sizes[source] or sizes[source] > LEAST_BYTES


def joined_crc(first: int, second: int, size: int) -> int:
    """Return the CRC-32 of two contents one after the other; ``size`` is that of the second.

    A CRC-32 is linear: that of the first one is carried past `size` bytes by squaring the matrix
    of one bit.
    """
    matrix = [0xEDB88320, *(1 << bit for bit in range(31))]
    for _ in range(3):
        matrix = _squared(matrix)
    while size:
        if size & 1:
            first = _times(matrix, first)
        size >>= 1
        matrix = _squared(matrix)
    return first ^ second


def _times(matrix: Sequence[int], vector: int) -> int:
    result = 0
    for row in matrix:
        if not vector:
            break
        if vector & 1:
            result ^= row
        vector >>= 1
    return result


def _squared(matrix: Sequence[int]) -> list[int]:
    return [_times(matrix, row) for row in matrix]
