"""A streaming DataFrame of the user's as a source, with its state in the job's checkpoints."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.errors import InvalidJobError
from penstock.spark.row_types import RowsOfBatches, row_type_of
from penstock.spark.stream_enumerator import StreamEnumerator
from penstock.spark.stream_log import read_range


class StreamSource(Source):
    """The rows that a query in append mode gives.

    The DataFrame stays on the driver; what travels to tasks is only the type of its rows.
    """

    def __init__(self, df: DataFrame, *, bounded: bool, trigger: str | None) -> None:
        if not isinstance(df, DataFrame) or not df.isStreaming:
            message = (
                "from_stream() takes a streaming DataFrame, as spark.readStream gives one; "
                f"got {df!r}: for a batch DataFrame use from_dataframe()"
            )
            raise InvalidJobError(message)
        if bounded and trigger is not None:
            message = f"a bounded from_stream() reads what is there at once: leave {trigger!r} out"
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
            made: list[Row] = rows(batch)
            yield made


def _check_append(df: DataFrame) -> None:
    jvm: Any = df.sparkSession._jvm
    plan = df._jdf.queryExecution().analyzed()
    if any("TransformWithState" in line for line in plan.treeString().splitlines()):
        message = (
            "from_stream(): transformWithState keeps paths of its files, which cannot move with a "
            "checkpoint: use a KeyedProcessFunction behind from_stream() instead"
        )
        raise InvalidJobError(message)
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    try:
        checker.checkForStreaming(plan, append)
    except Exception as error:
        said = str(error).splitlines()[0]
        message = (
            "from_stream() takes rows that a query gives in append mode, and this one has none "
            f"({said}): put withWatermark() before its aggregation, or leave the aggregation to "
            "key_by() with reduce() or a window behind from_stream()"
        )
        raise InvalidJobError(message) from error
