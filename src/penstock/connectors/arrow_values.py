"""Values of Flink's types out of the columns of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types as kinds

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
)
from penstock.connectors.arrow_types import arrow_type

__all__ = ["type_to_read", "values_of"]

_Converter: TypeAlias = Callable[[Any], Any]


def type_to_read(found: pa.DataType, wanted: TypeInformation, field: str) -> pa.DataType:
    """Return the type to cast a column to before its values are taken.

    Only among types that mean the same: no number out of a text.

    Raises:
        ValueError: if the column holds something else.
    """
    match wanted:
        case BasicTypeInfo(BasicType.BIG_DEC) if kinds.is_decimal(found):
            return found
        case BasicTypeInfo(kind) if any(same(found) for same in _SAME.get(kind, ())):
            return arrow_type(wanted, field)
        case SqlTimeTypeInfo(time_kind) if _SAME_TIME[time_kind](found):
            return arrow_type(wanted, field)
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)) if _is_binary(found):
            return pa.binary()
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ) if _is_list(found):
            return pa.list_(type_to_read(found.value_type, element, field))
        case MapTypeInfo(key, value) if kinds.is_map(found):
            return pa.map_(
                type_to_read(found.key_type, key, field),
                type_to_read(found.item_type, value, field),
            )
        case RowTypeInfo(types, names) if kinds.is_struct(found):
            inner = _fields_of(found, names, field)
            return _struct(names, inner, types, field)
        case TupleTypeInfo(types) if kinds.is_struct(found) and found.num_fields == len(types):
            inner = [found.field(n) for n in range(len(types))]
            return _struct(tuple(part.name for part in inner), inner, types, field)
    message = f"field {field!r} is {found}, which is no {wanted!r}"
    raise ValueError(message)


def values_of(column: pa.Array, wanted: TypeInformation) -> list[Any]:
    """Return the values of a column that was cast as :func:`type_to_read` says."""
    plain: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    convert = _converter(wanted)
    return plain if convert is None else list(map(convert, plain))


def _is_text(found: pa.DataType) -> bool:
    if kinds.is_dictionary(found):
        return _is_text(found.value_type)
    return bool(kinds.is_string(found) or kinds.is_large_string(found))


def _is_binary(found: pa.DataType) -> bool:
    return bool(
        kinds.is_binary(found) or kinds.is_large_binary(found) or kinds.is_fixed_size_binary(found)
    )


def _is_list(found: pa.DataType) -> bool:
    return bool(
        kinds.is_list(found) or kinds.is_large_list(found) or kinds.is_fixed_size_list(found)
    )


_SAME: dict[BasicType, tuple[Callable[[pa.DataType], bool], ...]] = {
    BasicType.STRING: (_is_text,),
    BasicType.CHAR: (_is_text,),
    BasicType.BOOLEAN: (kinds.is_boolean,),
    BasicType.BYTE: (kinds.is_integer,),
    BasicType.SHORT: (kinds.is_integer,),
    BasicType.INT: (kinds.is_integer,),
    BasicType.LONG: (kinds.is_integer,),
    BasicType.FLOAT: (kinds.is_float32, kinds.is_float16),
    BasicType.DOUBLE: (kinds.is_floating,),
    BasicType.INSTANT: (kinds.is_timestamp,),
}
_SAME_TIME: dict[SqlTimeType, Callable[[pa.DataType], bool]] = {
    SqlTimeType.DATE: kinds.is_date,
    SqlTimeType.TIME: kinds.is_time,
    SqlTimeType.TIMESTAMP: kinds.is_timestamp,
}


def _fields_of(found: pa.DataType, names: tuple[str, ...], field: str) -> list[pa.Field]:
    missing = [name for name in names if found.get_field_index(name) < 0]
    if missing:
        message = f"field {field!r} is {found}, which lacks {missing}"
        raise ValueError(message)
    return [found.field(name) for name in names]


def _struct(
    names: tuple[str, ...], inner: list[pa.Field], types: tuple[TypeInformation, ...], field: str
) -> pa.DataType:
    parts = zip(names, inner, types, strict=True)
    return pa.struct(
        [
            (name, type_to_read(part.type, kind, f"{field}.{part.name}"))
            for name, part, kind in parts
        ]
    )


def _converter(wanted: TypeInformation) -> _Converter | None:
    """Return what makes a value of what Arrow gives; None if it is one."""
    match wanted:
        case BasicTypeInfo(BasicType.INSTANT):
            return _or_none(lambda moment: Instant(*divmod(moment.value, 1_000_000_000)))
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return None
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ):
            convert = _converter(element)
            return convert and _or_none(lambda values: list(map(convert, values)))
        case MapTypeInfo(key, value):
            of_key, of_value = _converter(key) or _itself, _converter(value) or _itself
            return _or_none(lambda d: {of_key(k): of_value(v) for k, v in d.items()})
        case RowTypeInfo(types, names):
            make, of_fields = Row(*names), [_converter(kind) or _itself for kind in types]
            return _or_none(
                lambda found: make(*(of(found[n]) for of, n in zip(of_fields, names, strict=True)))
            )
        case TupleTypeInfo(types):
            of_fields = [_converter(kind) or _itself for kind in types]
            return _or_none(
                lambda found: tuple(of(v) for of, v in zip(of_fields, found.values(), strict=True))
            )
    return None


def _itself(value: Any) -> Any:
    return value


def _or_none(convert: _Converter) -> _Converter:
    return lambda value: None if value is None else convert(value)
