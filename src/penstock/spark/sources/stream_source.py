"""A streaming DataFrame as a source, with its state in the job's checkpoints."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

from collections.abc import Iterator
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
from penstock.spark.sources.stream_enumerator import StreamEnumerator
from penstock.spark.sources.stream_log import read_range


class StreamSource(Source):
    """The rows that a streaming query returns in append mode.

    The DataFrame stays on the driver; tasks get only the type of its rows.
    """

    def __init__(self, df: DataFrame, *, bounded: bool, trigger: str | None) -> None:
        if not isinstance(df, DataFrame) or not df.isStreaming:
            message = (
                "from_stream() needs a streaming DataFrame, such as one of spark.readStream; "
                f"got {df!r}: for a batch DataFrame use from_dataframe()"
            )
            raise InvalidJobError(message)
        if bounded and trigger is not None:
            message = f"a bounded from_stream() reads all input at once: omit trigger={trigger!r}"
            raise InvalidJobError(message)
        _check_append(df)
        self._df: DataFrame | None = df
        self._bounded = bounded
        self._trigger = trigger
        self._type = row_type_of(df.schema)

    def __getstate__(self) -> tuple[RowTypeInfo, bool]:
        return self._type, self._bounded

    def __setstate__(self, state: tuple[RowTypeInfo, bool]) -> None:
        self._type, self._bounded = state
        self._df = None
        self._trigger = None

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED if self._bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def type_info(self) -> TypeInformation:
        return self._type

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        assert self._df is not None
        trigger: dict[str, object] = {}
        if self._bounded:
            trigger = {"availableNow": True}
        elif self._trigger is not None:
            trigger = {"processingTime": self._trigger}
        return StreamEnumerator(self._df, trigger, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        rows = RowsOfBatches(self._type)
        for batch in read_range(split_range):
            converted: list[Row] = rows(batch)
            yield converted


def _check_append(df: DataFrame) -> None:
    jvm: Any = df.sparkSession._jvm
    plan = df._jdf.queryExecution().analyzed()
    if any("TransformWithState" in line for line in plan.treeString().splitlines()):
        message = (
            "from_stream(): transformWithState stores absolute paths of its files, which cannot be "
            "restored elsewhere: use a KeyedProcessFunction after from_stream() instead"
        )
        raise InvalidJobError(message)
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    try:
        checker.checkForStreaming(plan, append)
    except Exception as error:
        message = (
            "from_stream() needs a query that can run in append mode, and this one cannot "
            f"({str(error).splitlines()[0]}): put withWatermark() before its aggregation, or "
            "aggregate with key_by() and reduce() or a window after from_stream()"
        )
        raise InvalidJobError(message) from error
