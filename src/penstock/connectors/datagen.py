"""Source of generated records, as fast as they are wanted."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.counted import CountedEnumerator
from penstock.connectors.source import (
    CHUNK_RECORDS,
    Boundedness,
    Chunk,
    EnumeratorContext,
    Plan,
    Source,
    SourceEnumerator,
    SplitRange,
)

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

__all__ = ["DataGeneratorSource", "PacedEnumerator", "RateLimiterStrategy"]


@dataclass(frozen=True, slots=True)
class RateLimiterStrategy:
    """How many records per second all subtasks together may produce; None for any number."""

    records_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.records_per_second is not None and self.records_per_second <= 0:
            message = f"a rate must be positive; got {self.records_per_second!r} per second"
            raise ValueError(message)

    @staticmethod
    def per_second(records_per_second: float) -> RateLimiterStrategy:
        """Produce this many records per second."""
        return RateLimiterStrategy(records_per_second)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """Produce as many records as the job takes."""
        return RateLimiterStrategy()


class DataGeneratorSource(Source):
    """The results of a function for the indices from 0 to ``count``.

    The function runs in the tasks, and again for the same indices after a failure: what it
    gives should depend on the index alone, or a restored job will see other records.
    """

    def __init__(
        self,
        generator_function: Callable[[int], Any],
        count: int,
        rate_limiter_strategy: RateLimiterStrategy | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        if count < 0:
            message = f"a generator's count must not be negative; got {count!r}"
            raise ValueError(message)
        self._generate = generator_function
        self._count = count
        self._rate = (rate_limiter_strategy or RateLimiterStrategy.no_op()).records_per_second
        self._type_info = type_info

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def type_info(self) -> TypeInformation | None:
        return self._type_info

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        if self._rate is None:
            return CountedEnumerator(self._count, context)
        return PacedEnumerator(self._count, self._rate, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        for start in range(split_range.start, split_range.end, CHUNK_RECORDS):
            end = min(start + CHUNK_RECORDS, split_range.end)
            yield list(map(self._generate, range(start, end)))


class PacedEnumerator(CountedEnumerator):
    """Lets through what the passing time allows, and never more than a second's worth."""

    def __init__(self, count: int, rate: float, context: EnumeratorContext) -> None:
        super().__init__(count, context)
        self._rate = rate
        self._clock = context.clock
        self._allowed = 0.0
        self._allowed_at = 0.0

    def start(self, positions: Mapping[str, int]) -> None:
        super().start(positions)
        self._allowed_at = self._clock()

    def plan(self, max_records: int) -> Plan:
        self._let_time_pass()
        before = self._next
        plan = super().plan(min(max_records, int(self._allowed)))
        self._allowed -= self._next - before
        return plan

    def next_poll(self) -> float | None:
        if self.finished():
            return None
        self._let_time_pass()
        return max(0.0, (1.0 - self._allowed) / self._rate)

    def _let_time_pass(self) -> None:
        now = self._clock()
        earned = max(0.0, now - self._allowed_at) * self._rate
        self._allowed = min(self._allowed + earned, max(1.0, self._rate))
        self._allowed_at = now
