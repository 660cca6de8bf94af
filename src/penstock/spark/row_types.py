"""Converts the types and values of rows to those of a DataFrame, and back."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from penstock.errors import InvalidJobError
from penstock.types.arrow import FromArrow, ToArrow
from penstock.types.traversal import TypeVisitor, field_names

_TO_SPARK: dict[BasicType | SqlTimeType, spark_types.DataType] = {
    BasicType.STRING: spark_types.StringType(),
    BasicType.CHAR: spark_types.StringType(),
    BasicType.BOOLEAN: spark_types.BooleanType(),
    BasicType.BYTE: spark_types.ByteType(),
    BasicType.SHORT: spark_types.ShortType(),
    BasicType.INT: spark_types.IntegerType(),
    BasicType.LONG: spark_types.LongType(),
    BasicType.FLOAT: spark_types.FloatType(),
    BasicType.DOUBLE: spark_types.DoubleType(),
    BasicType.BIG_DEC: spark_types.DecimalType(38, 18),
    BasicType.INSTANT: spark_types.TimestampType(),
    SqlTimeType.DATE: spark_types.DateType(),
    SqlTimeType.TIMESTAMP: spark_types.TimestampNTZType(),
}

_FROM_SPARK: dict[type[spark_types.DataType], TypeInformation] = {
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
    spark_types.TimestampType: Types.INSTANT(),
    spark_types.TimestampNTZType: Types.SQL_TIMESTAMP(),
    spark_types.BinaryType: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def spark_schema(row_type: RowTypeInfo) -> spark_types.StructType:
    """Return the schema of a DataFrame with rows of a type.

    Raises:
        InvalidJobError: Spark has no type for a field.
    """
    fields = zip(row_type.field_names, row_type.field_types, strict=True)
    types = [_SparkTypes(name).visit(type_info) for name, type_info in fields]
    return _struct(row_type.field_names, types)


def row_type_of(schema: spark_types.StructType) -> RowTypeInfo:
    """Return the type of a DataFrame's rows; a column of an unknown type is pickled.

    Raises:
        InvalidJobError: two columns have the same name.
    """
    names = schema.fieldNames()
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"the DataFrame has two columns named {twice!r}: rename one of them with alias()"
        raise InvalidJobError(message)
    return RowTypeInfo(tuple(_type_of(f.dataType) for f in schema.fields), tuple(names))


class ArrowRows:
    """Converts rows of a declared type into record batches; used in tasks."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._schema = to_arrow_schema(spark_schema(row_type), timezone="UTC")
        self._to_arrow = list(map(_TO_ARROW.visit, row_type.field_types))

    def of_columns(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return a batch of columns that already have the declared types."""
        return pa.RecordBatch.from_arrays(list(columns), schema=self._schema)

    def of_rows(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return a batch of rows."""
        columns = [
            pa.array(values if convert is None else list(map(convert, values)), field.type)
            for values, convert, field in zip(
                zip(*rows, strict=True), self._to_arrow, self._schema, strict=True
            )
        ]
        return self.of_columns(columns)


class RowsOfBatches:
    """Converts the record batches that Spark gives to a task into rows."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._make = Row(*row_type.field_names)
        self._from_arrow = list(map(_FROM_ARROW.visit, row_type.field_types))

    def __call__(self, batch: pa.RecordBatch) -> list[Row]:
        """Return the rows of a batch."""
        columns = [
            column.to_pylist() if convert is None else list(map(convert, column.to_pylist()))
            for column, convert in zip(batch.columns, self._from_arrow, strict=True)
        ]
        make = self._make
        return [make(*values) for values in zip(*columns, strict=True)]


class _SparkTypes(TypeVisitor[spark_types.DataType]):
    def __init__(self, field: str) -> None:
        self._field = field

    def visit_basic(self, type_info: BasicTypeInfo) -> spark_types.DataType:
        return self._leaf(type_info.kind, type_info)

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> spark_types.DataType:
        return self._leaf(type_info.kind, type_info)

    def visit_bytes(self, type_info: TypeInformation) -> spark_types.DataType:
        return spark_types.BinaryType()

    def visit_array(
        self, element: spark_types.DataType, type_info: TypeInformation
    ) -> spark_types.DataType:
        return spark_types.ArrayType(element)

    def visit_map(
        self, key: spark_types.DataType, value: spark_types.DataType, type_info: MapTypeInfo
    ) -> spark_types.DataType:
        return spark_types.MapType(key, value)

    def visit_tuple(
        self, fields: list[spark_types.DataType], type_info: TupleTypeInfo | RowTypeInfo
    ) -> spark_types.DataType:
        return _struct(field_names(type_info), fields)

    visit_row = visit_tuple

    def _leaf(
        self, kind: BasicType | SqlTimeType, type_info: TypeInformation
    ) -> spark_types.DataType:
        return _TO_SPARK[kind] if kind in _TO_SPARK else self.unsupported(type_info)

    def unsupported(self, type_info: TypeInformation) -> NoReturn:
        message = (
            f"field {self._field!r}: a DataFrame has no column type for {type_info!r}; declare a "
            "type such as LONG, STRING, BIG_DEC or PRIMITIVE_ARRAY(BYTE), or map() it to one"
        )
        raise InvalidJobError(message)


def _struct(names: Sequence[str], types: Sequence[spark_types.DataType]) -> spark_types.StructType:
    fields = zip(names, types, strict=True)
    return spark_types.StructType([spark_types.StructField(n, kind) for n, kind in fields])


def _type_of(kind: spark_types.DataType) -> TypeInformation:
    match kind:
        case spark_types.ArrayType(elementType=element):
            return Types.OBJECT_ARRAY(_type_of(element))
        case spark_types.MapType(keyType=key, valueType=value):
            return Types.MAP(_type_of(key), _type_of(value))
        case spark_types.StructType() if len(set(kind.fieldNames())) == len(kind.fields) > 0:
            return row_type_of(kind)
    return _FROM_SPARK.get(type(kind)) or Types.PICKLED_BYTE_ARRAY()


def _instant(timestamp: datetime.datetime) -> Instant:
    seconds, micros = divmod((timestamp - _EPOCH) // _MICROSECOND, 1_000_000)
    return Instant(seconds, micros * 1_000)


_TO_ARROW = ToArrow(lambda instant: instant.seconds * 1_000_000 + instant.nanos // 1_000)
_FROM_ARROW = FromArrow(_instant)
