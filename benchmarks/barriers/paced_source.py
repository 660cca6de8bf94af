"""A source whose records become available at a steady rate, up to an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from penstock.common import Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.source import (
    CHUNK_RECORDS,
    Boundedness,
    Chunk,
    EnumeratorContext,
    ReadPlan,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.indexed_sources import divide_range


class PacedSource(Source):
    """Records (number, when it was due); what is late keeps the time at which it was due.

    The first one is due when the job first plans: the only split is named after that time.
    """

    def __init__(self, rate: float, count: int) -> None:
        self._rate = rate
        self._count = count

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def type_info(self) -> TypeInformation | None:
        return Types.TUPLE([Types.LONG(), Types.DOUBLE()])

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return _PacedEnumerator(self._rate, self._count, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        began = float(split_range.split)
        for start in range(split_range.start, split_range.end, CHUNK_RECORDS):
            end = min(start + CHUNK_RECORDS, split_range.end)
            yield [(number, began + number / self._rate) for number in range(start, end)]


class _PacedEnumerator(SourceEnumerator):
    def __init__(self, rate: float, count: int, context: EnumeratorContext) -> None:
        self._rate = rate
        self._count = count
        self._parallelism = context.parallelism
        self._clock: Callable[[], float] = context.clock
        self._next = 0
        self._began: float | None = None

    def start(self, positions: Mapping[str, int]) -> None:
        for split, position in positions.items():
            self._began, self._next = float(split), position

    def plan(self, max_records: int) -> ReadPlan:
        now = self._clock()
        if self._began is None:
            self._began = now
        due = int((now - self._began) * self._rate) + 1
        start, end = self._next, min(self._next + max_records, due, self._count)
        if start >= end:
            return []
        self._next = end
        return divide_range(repr(self._began), start, end, self._parallelism)

    def positions(self) -> dict[str, int]:
        return {} if self._began is None else {repr(self._began): self._next}

    def finished(self) -> bool:
        return self._next >= self._count

    def next_poll(self) -> float | None:
        if self.finished() or self._began is None:
            return None if self.finished() else 0.0
        return max(0.0, self._began + self._next / self._rate - self._clock())
