"""Source of consecutive numbers."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Iterator

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.counted import CountedEnumerator
from penstock.connectors.source import (
    CHUNK_RECORDS,
    Boundedness,
    Chunk,
    EnumeratorContext,
    Source,
    SourceEnumerator,
    SplitRange,
)

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(Source):
    """The numbers from ``start`` to ``end``, both included, divided among the subtasks."""

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            message = f"a number sequence needs start <= end; got {start!r} and {end!r}"
            raise ValueError(message)
        self._first = start
        self._count = end - start + 1

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def type_info(self) -> TypeInformation | None:
        return Types.LONG()

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return CountedEnumerator(self._count, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        for start in range(split_range.start, split_range.end, CHUNK_RECORDS):
            end = min(start + CHUNK_RECORDS, split_range.end)
            yield list(range(self._first + start, self._first + end))
