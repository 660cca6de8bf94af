"""What Flink's types are in the columns of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

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
)
from penstock.errors import InvalidJobError

__all__ = ["arrow_schema", "arrow_type", "plain_for"]

_BASIC = {
    BasicType.STRING: pa.string(),
    BasicType.BYTE: pa.int8(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.CHAR: pa.string(),
    BasicType.BIG_DEC: pa.decimal128(38, 18),
    BasicType.INSTANT: pa.timestamp("ns", "UTC"),
}
_SQL_TIME = {
    SqlTimeType.DATE: pa.date32(),
    SqlTimeType.TIME: pa.time64("us"),
    SqlTimeType.TIMESTAMP: pa.timestamp("us"),
}


def arrow_schema(row_type: RowTypeInfo) -> pa.Schema:
    """Return the columns of a row type; refuse types that no column can hold."""
    return pa.schema(_fields(row_type.field_names, row_type.field_types))


def _fields(names: tuple[str, ...], types: tuple[TypeInformation, ...]) -> list[pa.Field]:
    return [pa.field(name, arrow_type(kind, name)) for name, kind in zip(names, types, strict=True)]


def arrow_type(type_info: TypeInformation, column: str) -> pa.DataType:
    """Return the type of a column."""
    match type_info:
        case BasicTypeInfo(kind) if kind in _BASIC:
            return _BASIC[kind]
        case SqlTimeTypeInfo(kind=time_kind):
            return _SQL_TIME[time_kind]
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return pa.binary()
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ):
            return pa.list_(arrow_type(element, column))
        case MapTypeInfo(key, value):
            return pa.map_(arrow_type(key, column), arrow_type(value, column))
        case RowTypeInfo(types, names):
            return pa.struct(_fields(names, types))
        case TupleTypeInfo(types):
            return pa.struct(_fields(tuple(f"f{n}" for n in range(len(types))), types))
    message = (
        f"column {column!r}: no column can hold {type_info!r}; map it to a type such as "
        "LONG, STRING or PRIMITIVE_ARRAY(BYTE) first"
    )
    raise InvalidJobError(message)


def plain_for(type_info: TypeInformation) -> Callable[[Any], Any] | None:
    """Return what makes plain copies, which Arrow takes, of values that fit a type.

    None if they are plain as they are.
    """
    match type_info:
        case BasicTypeInfo(BasicType.INSTANT):
            return _or_none(_nanoseconds)
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return None
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ):
            plain = plain_for(element)
            return _or_none(list if plain is None else lambda values: list(map(plain, values)))
        case MapTypeInfo(key, value):
            of_key, of_value = plain_for(key) or _itself, plain_for(value) or _itself
            return _or_none(lambda d: [(of_key(k), of_value(v)) for k, v in d.items()])
        case RowTypeInfo(types) | TupleTypeInfo(types):
            of_fields = [plain_for(field) or _itself for field in types]
            return _or_none(lambda row: tuple(of(v) for of, v in zip(of_fields, row, strict=True)))
    return None


def _itself(value: Any) -> Any:
    return value


def _or_none(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else plain(value)


def _nanoseconds(instant: Instant) -> int:
    return instant.seconds * 1_000_000_000 + instant.nanos
