"""A Spark DataFrame as a source: Spark reads it, and its tasks run the operator chain."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.contracts.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.errors import InvalidJobError
from penstock.spark.row_types import RowsOfBatches, row_type_of


class DataFrameSource(Source):
    """The rows of a DataFrame, all of them in one micro-batch.

    The DataFrame stays on the driver; tasks get only the type of its rows.
    """

    def __init__(self, df: DataFrame) -> None:
        if df.isStreaming:
            message = (
                "from_dataframe() needs a batch DataFrame; this one is streaming: use from_stream()"
            )
            raise InvalidJobError(message)
        self.df: DataFrame | None = df
        self._type = row_type_of(df.schema)

    def __getstate__(self) -> RowTypeInfo:
        return self._type

    def __setstate__(self, state: RowTypeInfo) -> None:
        self.df = None
        self._type = state

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def type_info(self) -> TypeInformation:
        return self._type

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return _Once()

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        raise AssertionError  # Spark reads the DataFrame

    def read_batches(self, batches: Iterator[Any]) -> Iterator[list[Row]]:
        """Convert Arrow record batches into rows, inside a task."""
        yield from map(RowsOfBatches(self._type), batches)


class _Once(SourceEnumerator):
    def __init__(self) -> None:
        self._done = False

    def start(self, positions: Mapping[str, int]) -> None:
        self._done = bool(positions)

    def plan(self, max_records: int) -> list[list[SplitRange]]:
        if self._done:
            return []
        self._done = True
        return [[SplitRange("dataframe", 0, 1)]]

    def positions(self) -> dict[str, int]:
        return {"dataframe": 1} if self._done else {}

    def finished(self) -> bool:
        return self._done
