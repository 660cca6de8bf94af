"""A Spark DataFrame as a source: Spark reads it, and its tasks run the chain behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.errors import InvalidJobError

_BASIC: dict[type[spark_types.DataType], TypeInformation] = {
    spark_types.StringType: Types.STRING(),
    spark_types.BooleanType: Types.BOOLEAN(),
    spark_types.ByteType: Types.BYTE(),
    spark_types.ShortType: Types.SHORT(),
    spark_types.IntegerType: Types.INT(),
    spark_types.LongType: Types.LONG(),
    spark_types.FloatType: Types.FLOAT(),
    spark_types.DoubleType: Types.DOUBLE(),
    spark_types.DecimalType: Types.BIG_DEC(),
    spark_types.DateType: Types.SQL_DATE(),
}


class DataFrameSource(Source):
    """The rows of a DataFrame, all of them in one micro-batch.

    The DataFrame stays on the driver; what travels to tasks is only the type of its rows.
    """

    def __init__(self, df: DataFrame) -> None:
        if df.isStreaming:
            message = "from_dataframe() takes a batch DataFrame; this one is a stream (readStream)"
            raise InvalidJobError(message)
        self.df: DataFrame | None = df
        self._type = _row_type(df.schema)

    def __getstate__(self) -> RowTypeInfo:
        return self._type

    def __setstate__(self, state: RowTypeInfo) -> None:
        self.df = None
        self._type = state

    def boundedness(self) -> Boundedness:
        """Return BOUNDED."""
        return Boundedness.BOUNDED

    def type_info(self) -> TypeInformation:
        """Return a row type with the DataFrame's columns."""
        return self._type

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        """Return an enumerator that asks for everything, once."""
        return _Once()

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        """Refuse: Spark reads."""
        raise AssertionError

    def read_batches(self, batches: Iterator[Any]) -> Iterator[list[Row]]:
        """Turn Arrow record batches, inside a task, into rows."""
        make = Row(*self._type.field_names)
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            yield [make(*values) for values in zip(*columns, strict=True)]


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


def _row_type(schema: spark_types.StructType) -> RowTypeInfo:
    return RowTypeInfo(
        tuple(_type_of(f.dataType) for f in schema.fields), tuple(f.name for f in schema.fields)
    )


def _type_of(kind: spark_types.DataType) -> TypeInformation:
    # Everything Arrow gives as another Python value than Flink's types have stays untyped.
    return _BASIC.get(type(kind)) or Types.PICKLED_BYTE_ARRAY()
