"""The connector `datagen`: generated rows, with Flink's options.

A row depends on the names of its table and columns and on its number only, so that a restored job
generates the same rows again. Times are relative to the first start of the job: this is the name of
the source's only split, and so part of every checkpoint.
"""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.common.config.option_kinds import NON_NEGATIVE_INTEGER, POSITIVE_INTEGER
from penstock.common.row import rows_of
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.contracts.source import (
    CHUNK_RECORDS,
    Boundedness,
    Chunk,
    EnumeratorContext,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.indexed_sources import RateLimitedEnumerator
from penstock.table.datagen_columns import read_column
from penstock.table.generated import Generator
from penstock.table.table_options import TableOptions

_ENDLESS = 2**63 - 1
_DEFAULT_ROWS_PER_SECOND = 10_000


@dataclass(frozen=True, slots=True)
class DatagenSource(Source):
    """Generates rows at a rate, in the order of their numbers; unbounded if `count` is None."""

    row_type: RowTypeInfo
    generators: tuple[Generator, ...]
    rows_per_second: int
    count: int | None

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED if self.count is None else Boundedness.BOUNDED

    def type_info(self) -> RowTypeInfo:
        return self.row_type

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        count = _ENDLESS if self.count is None else self.count
        return _DatedEnumerator(count, self.rows_per_second, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        started = int(split_range.split)
        for start in range(split_range.start, split_range.end, CHUNK_RECORDS):
            numbers = range(start, min(start + CHUNK_RECORDS, split_range.end))
            due = [started + number * 1000 // self.rows_per_second for number in numbers]
            columns = [list(map(generate, numbers, due)) for generate in self.generators]
            yield rows_of(self.row_type.field_names, columns)


class _DatedEnumerator(RateLimitedEnumerator):
    """Names its split after the millisecond of its first start."""

    def __init__(self, count: int, rate: float, context: EnumeratorContext) -> None:
        super().__init__(count, rate, context)
        self._clock = context.clock

    def start(self, positions: Mapping[str, int]) -> None:
        self._split = next(iter(positions), str(int(self._clock() * 1000)))
        super().start(positions)


def datagen_source(table: str, row_type: RowTypeInfo, values: Mapping[str, str]) -> DatagenSource:
    """Return the source of a table's options.

    Raises:
        InvalidJobError: an option or a column type is not supported.
    """
    options = TableOptions(table, values)
    rate = options.read("rows-per-second", POSITIVE_INTEGER, _DEFAULT_ROWS_PER_SECOND)
    number_of_rows = options.read("number-of-rows", NON_NEGATIVE_INTEGER, None)
    fields = zip(row_type.field_names, row_type.field_types, strict=True)
    columns = [read_column(options, name, type_info) for name, type_info in fields]
    options.check_all_read()
    # The table ends with its first sequence that ends.
    ends = [end for end in (number_of_rows, *(c.count for c in columns)) if end is not None]
    generators = tuple(column.generator for column in columns)
    return DatagenSource(row_type, generators, rate, min(ends, default=None))
