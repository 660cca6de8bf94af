"""Bounded sources whose records are numbered: number sequences, collections, generated records."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import cloudpickle

from penstock.common.typeinfo import TupleTypeInfo, Types
from penstock.connectors.contracts import source
from penstock.connectors.contracts.builder_checks import require
from penstock.types.serializers import edge_serializer_for

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

SINGLE_SPLIT = "0"
"""The id of the split of a source that has only one."""

# A range unpickles only the blocks it touches, so that many small ranges do not unpickle them all.
_BLOCK_ELEMENTS = 4096


def divide_range(split: str, start: int, end: int, pieces: int) -> source.ReadPlan:
    """Divide a range evenly among the subtasks in ascending order; some may get nothing."""
    length = end - start
    cuts = [start + length * piece // pieces for piece in range(pieces + 1)]
    return [
        [source.SplitRange(split, low, high)] if low < high else [] for low, high in pairwise(cuts)
    ]


class IndexRangeEnumerator(source.SourceEnumerator):
    """Plans the indices from 0 to ``count``, each plan divided evenly among the subtasks."""

    def __init__(self, count: int, context: source.EnumeratorContext) -> None:
        self._count = count
        self._parallelism = context.parallelism
        self._split = SINGLE_SPLIT
        """A subclass may name its split in `start`, before it calls this class's."""
        self._next = 0

    def start(self, positions: Mapping[str, int]) -> None:
        self._next = positions.get(self._split, 0)

    def plan(self, max_records: int) -> source.ReadPlan:
        start = self._next
        end = min(start + max_records, self._count)
        if start >= end:
            return []
        self._next = end
        return divide_range(self._split, start, end, self._parallelism)

    def positions(self) -> dict[str, int]:
        return {self._split: self._next}

    def finished(self) -> bool:
        return self._next >= self._count


class _IndexedSource(source.Source):
    """A bounded source that computes its records from their indices."""

    def __init__(self, count: int, type_info: TypeInformation | None) -> None:
        self._count = count
        self._type_info = type_info

    @abstractmethod
    def records(self, start: int, end: int) -> list[Any]:
        """Return the records of a range of indices, in a task."""

    def boundedness(self) -> source.Boundedness:
        return source.Boundedness.BOUNDED

    def type_info(self) -> TypeInformation | None:
        return self._type_info

    def enumerator(self, context: source.EnumeratorContext) -> source.SourceEnumerator:
        return IndexRangeEnumerator(self._count, context)

    def read(self, split_range: source.SplitRange) -> Iterator[source.Chunk]:
        for start in range(split_range.start, split_range.end, source.CHUNK_RECORDS):
            yield self.records(start, min(start + source.CHUNK_RECORDS, split_range.end))


class NumberSequenceSource(_IndexedSource):
    """The numbers from ``start`` to ``end``, both included, divided among the subtasks."""

    def __init__(self, start: int, end: int) -> None:
        message = f"a number sequence needs start <= end; got {start!r} and {end!r}"
        require(start <= end, message, ValueError)
        super().__init__(end - start + 1, Types.LONG())
        self._first = start

    def records(self, start: int, end: int) -> list[int]:
        return list(range(self._first + start, self._first + end))


class CollectionSource(_IndexedSource):
    """The elements of a collection as they are now, in order.

    They are pickled once, here: changing an element later does not change the stream. With a type
    they are coerced to it (a tuple under ROW becomes a row), and an element of another type is
    rejected.
    """

    def __init__(self, elements: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        values = _coerced(list(elements), type_info)
        super().__init__(len(values), type_info)
        self._blocks = [
            cloudpickle.dumps(values[first : first + _BLOCK_ELEMENTS])
            for first in range(0, len(values), _BLOCK_ELEMENTS)
        ]

    def default_parallelism(self) -> int | None:
        return 1

    def read(self, split_range: source.SplitRange) -> Iterator[list[Any]]:
        start, end = split_range.start, split_range.end
        for index in range(start // _BLOCK_ELEMENTS, -(-end // _BLOCK_ELEMENTS)):
            first = index * _BLOCK_ELEMENTS
            yield self.records(max(start, first), min(end, first + _BLOCK_ELEMENTS))

    def records(self, start: int, end: int) -> list[Any]:
        index, offset = divmod(start, _BLOCK_ELEMENTS)
        block: list[Any] = pickle.loads(self._blocks[index])
        return block[offset : offset + end - start]


def _coerced(values: list[Any], type_info: TypeInformation | None) -> list[Any]:
    if type_info is None:
        return values
    serializer = edge_serializer_for(type_info)
    coerce, write, decode = serializer.coerce, serializer.write, serializer.decode
    if isinstance(type_info, TupleTypeInfo):
        # As in PyFlink; elsewhere a list is no tuple, because it could still be changed.
        values = [tuple(value) if isinstance(value, list) else value for value in values]
    return [decode(write(coerce(value, f"[{i}]"))) for i, value in enumerate(values)]


@dataclass(frozen=True, slots=True)
class RateLimiterStrategy:
    """How many records per second all subtasks together may produce; None for no limit."""

    records_per_second: float | None = None

    def __post_init__(self) -> None:
        rate = self.records_per_second
        message = f"a rate must be positive; got {rate!r} per second"
        require(rate is None or rate > 0, message, ValueError)

    @staticmethod
    def per_second(records_per_second: float) -> RateLimiterStrategy:
        """Produce this many records per second."""
        return RateLimiterStrategy(records_per_second)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """Produce records without a limit."""
        return RateLimiterStrategy()


class DataGeneratorSource(_IndexedSource):
    """The results of a function for the indices from 0 to ``count``.

    The function runs in the tasks, and again for the same indices after a failure: its result
    should depend on the index alone, or a restored job produces other records.
    """

    def __init__(
        self,
        generator_function: Callable[[int], Any],
        count: int,
        rate_limiter_strategy: RateLimiterStrategy | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        message = f"a generator's count must not be negative; got {count!r}"
        require(count >= 0, message, ValueError)
        super().__init__(count, type_info)
        self._generate = generator_function
        self._rate = (rate_limiter_strategy or RateLimiterStrategy.no_op()).records_per_second

    def enumerator(self, context: source.EnumeratorContext) -> source.SourceEnumerator:
        if self._rate is None:
            return super().enumerator(context)
        return RateLimitedEnumerator(self._count, self._rate, context)

    def records(self, start: int, end: int) -> list[Any]:
        return list(map(self._generate, range(start, end)))


class RateLimitedEnumerator(IndexRangeEnumerator):
    """Plans as many records as the time allows, and never more than one second's worth."""

    def __init__(self, count: int, rate: float, context: source.EnumeratorContext) -> None:
        super().__init__(count, context)
        self._rate = rate
        self._monotonic = context.monotonic
        self._allowed = 0.0
        self._allowed_at = 0.0

    def start(self, positions: Mapping[str, int]) -> None:
        super().start(positions)
        self._allowed_at = self._monotonic()

    def plan(self, max_records: int) -> source.ReadPlan:
        self._refill()
        before = self._next
        plan = super().plan(min(max_records, int(self._allowed)))
        self._allowed -= self._next - before
        return plan

    def next_poll(self) -> float | None:
        if self.finished():
            return None
        self._refill()
        return max(0.0, (1.0 - self._allowed) / self._rate)

    def _refill(self) -> None:
        now = self._monotonic()
        earned = max(0.0, now - self._allowed_at) * self._rate
        self._allowed = min(self._allowed + earned, max(1.0, self._rate))
        self._allowed_at = now
