"""Rows here and rows of a DataFrame: their types and their values, both ways."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from penstock.errors import InvalidJobError

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

Convert = Callable[[Any], Any]


def spark_schema(row_type: RowTypeInfo) -> spark_types.StructType:
    """Return the columns that rows of a type make.

    Raises:
        InvalidJobError: Spark has nothing for a field's type.
    """
    return _struct(row_type.field_names, row_type.field_types)


def row_type_of(schema: spark_types.StructType) -> RowTypeInfo:
    """Return the type of a DataFrame's rows; a column of a type unknown here stays untyped.

    Raises:
        InvalidJobError: two columns have one name.
    """
    names = schema.fieldNames()
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"the DataFrame has two columns {twice!r}: rename one of them with alias()"
        raise InvalidJobError(message)
    return RowTypeInfo(tuple(_type_of(f.dataType) for f in schema.fields), tuple(names))


class ArrowRows:
    """Makes record batches of rows of a declared type; used in tasks."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._schema = to_arrow_schema(spark_schema(row_type), timezone="UTC")
        self._plain = [_plain(t) for t in row_type.field_types]

    def of_columns(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Put columns together that are what the type says already."""
        return pa.RecordBatch.from_arrays(list(columns), schema=self._schema)

    def of_rows(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Turn rows into columns."""
        given = list(zip(*rows, strict=True))
        columns = [
            pa.array(values if plain is None else list(map(plain, values)), field.type)
            for values, plain, field in zip(given, self._plain, self._schema, strict=True)
        ]
        return self.of_columns(columns)


class RowsOfBatches:
    """Makes rows of the record batches that Spark gives to a task."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._make = Row(*row_type.field_names)
        self._value = [_value(t) for t in row_type.field_types]

    def __call__(self, batch: pa.RecordBatch) -> list[Row]:
        """Return the rows of a batch."""
        columns = [
            column.to_pylist() if value is None else list(map(value, column.to_pylist()))
            for column, value in zip(batch.columns, self._value, strict=True)
        ]
        make = self._make
        return [make(*values) for values in zip(*columns, strict=True)]


def _struct(names: tuple[str, ...], types: tuple[TypeInformation, ...]) -> spark_types.StructType:
    fields = zip(names, types, strict=True)
    return spark_types.StructType(
        [spark_types.StructField(name, _spark(kind, name)) for name, kind in fields]
    )


def _spark(type_info: TypeInformation, field: str) -> spark_types.DataType:
    match type_info:
        case BasicTypeInfo(kind=kind) | SqlTimeTypeInfo(kind=kind) if kind in _TO_SPARK:
            return _TO_SPARK[kind]
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return spark_types.BinaryType()
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ):
            return spark_types.ArrayType(_spark(element, field))
        case MapTypeInfo(key, value):
            return spark_types.MapType(_spark(key, field), _spark(value, field))
        case RowTypeInfo(types, names):
            return _struct(names, types)
        case TupleTypeInfo(types):
            return _struct(tuple(f"f{n}" for n in range(len(types))), types)
    message = (
        f"field {field!r}: a DataFrame has no column for {type_info!r}; declare a type such as "
        "LONG, STRING, BIG_DEC or PRIMITIVE_ARRAY(BYTE), or map() it to one"
    )
    raise InvalidJobError(message)


def _type_of(kind: spark_types.DataType) -> TypeInformation:
    match kind:
        case spark_types.ArrayType(elementType=element):
            return Types.OBJECT_ARRAY(_type_of(element))
        case spark_types.MapType(keyType=key, valueType=value):
            return Types.MAP(_type_of(key), _type_of(value))
        case spark_types.StructType() if len(set(kind.fieldNames())) == len(kind.fields) > 0:
            return row_type_of(kind)
    return _FROM_SPARK.get(type(kind)) or Types.PICKLED_BYTE_ARRAY()


def _plain(type_info: TypeInformation) -> Convert | None:
    """Return what makes of a value what Arrow takes; None if it takes the value as it is."""
    match type_info:
        case BasicTypeInfo(BasicType.INSTANT):
            return _or_none(lambda i: i.seconds * 1_000_000 + i.nanos // 1_000)
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return None
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ):
            return _list(_plain(element))
        case MapTypeInfo(key, value):
            of_key, of_value = _plain(key) or _itself, _plain(value) or _itself
            return _or_none(lambda d: [(of_key(k), of_value(v)) for k, v in d.items()])
        case RowTypeInfo(types) | TupleTypeInfo(types):
            fields = [_plain(t) or _itself for t in types]
            return _or_none(lambda row: tuple(f(v) for f, v in zip(fields, row, strict=True)))
    return None


def _value(type_info: TypeInformation) -> Convert | None:
    """Return what makes a value of Arrow's; None if that is the value."""
    match type_info:
        case BasicTypeInfo(BasicType.INSTANT):
            return _or_none(_instant)
        case ObjectArrayTypeInfo(element):
            inner = _value(element)
            return None if inner is None else _list(inner)
        case MapTypeInfo(key, value):
            of_key, of_value = _value(key) or _itself, _value(value) or _itself
            return _or_none(lambda pairs: {of_key(k): of_value(v) for k, v in pairs})
        case RowTypeInfo(types, names):
            make, fields = Row(*names), [_value(t) or _itself for t in types]
            return _or_none(
                lambda d: make(*(f(v) for f, v in zip(fields, d.values(), strict=True)))
            )
    return None


def _list(inner: Convert | None) -> Convert:
    return _or_none(list if inner is None else lambda values: list(map(inner, values)))


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _itself(value: Any) -> Any:
    return value


def _instant(moment: datetime.datetime) -> Instant:
    seconds, micros = divmod((moment - _EPOCH) // _MICROSECOND, 1_000_000)
    return Instant(seconds, micros * 1_000)
