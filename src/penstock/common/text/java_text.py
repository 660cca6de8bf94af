"""Formats values as a Flink job prints them.

PyFlink passes values to Java to print them, so the declared type determines the text: a DOUBLE
prints as ``1.0E10``. Values without a declared type, and the fields of a ROW that is printed, are
formatted in Python instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

from penstock.common.row import Row, RowKind
from penstock.common.text.java_numbers import double_text, float_text
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from penstock.errors import TypeMismatchError

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 an Instant is printed in UTC whatever the zone


def format_value(value: Any, type_info: TypeInformation | None) -> str:
    """Return the text that ``DataStream.print()`` writes for a record."""
    if isinstance(type_info, RowTypeInfo) and value is not None:
        kind, fields = _row_fields(value, type_info)
        return f"{kind}[{','.join(map(str, fields))}]"
    return java_string(value, type_info)


def java_string(value: Any, type_info: TypeInformation | None) -> str:
    """Return the result of Java's ``toString()`` for a value.

    Arrays are formatted by their elements, unlike in Java.
    """
    match type_info:
        case None:
            return str(value)
        case BasicTypeInfo(kind) if value is not None:
            return _BASIC_TEXT.get(kind, str)(value)
        case SqlTimeTypeInfo() if value is not None:
            return _time_text(value)
        case TupleTypeInfo(field_types) if value is not None:
            return f"({','.join(map(java_string, value, field_types))})"
        case RowTypeInfo(field_types) if value is not None:
            row_kind, fields = _row_fields(value, type_info)
            return f"{row_kind}[{', '.join(map(java_string, fields, field_types))}]"
        case MapTypeInfo(key, item) if value is not None:
            return _map_text(value, key, item)
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)) if isinstance(value, bytes):
            return _list_text(memoryview(value).cast("b"), type_info.element)
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ) if value is not None:
            return _list_text(value, element)
    untyped = isinstance(type_info, PickledBytesTypeInfo)
    return "null" if value is None and not untyped else str(value)


def _row_fields(value: Any, type_info: RowTypeInfo) -> tuple[RowKind, Iterable[Any]]:
    if isinstance(value, Row):
        names = type_info.field_names
        if hasattr(value, "_fields") and set(value._fields) == set(names):
            return value.get_row_kind(), value.get_fields_by_names(list(names))
        return value.get_row_kind(), value
    if isinstance(value, Mapping):
        return RowKind.INSERT, [value.get(name) for name in type_info.field_names]
    return RowKind.INSERT, value


def _list_text(values: Iterable[Any], element: TypeInformation) -> str:
    return f"[{', '.join(java_string(value, element) for value in values)}]"


def _map_text(values: Mapping[Any, Any], key: TypeInformation, item: TypeInformation) -> str:
    pairs = (f"{java_string(k, key)}={java_string(v, item)}" for k, v in values.items())
    return f"{{{', '.join(pairs)}}}"


def _boolean_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any, type_info: TypeInformation) -> float:
    if not isinstance(value, int | float):
        raise TypeMismatchError(path="", value=value, type_info=type_info)
    return float(value)


def _instant_text(value: Any) -> str:
    if not isinstance(value, Instant):
        return str(value)
    moment = _EPOCH + timedelta(seconds=value.seconds)
    return f"{moment.isoformat()}{_fraction_by_threes(value.nanos)}Z"


def _fraction_by_threes(nanos: int) -> str:
    digits = f"{nanos:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}" if digits else ""


def _time_text(value: Any) -> str:
    if isinstance(value, datetime):
        local = value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)
        fraction = f"{local.microsecond:06}".rstrip("0") or "0"
        return f"{local.replace(microsecond=0).isoformat(sep=' ')}.{fraction}"
    if isinstance(value, time):
        return value.replace(microsecond=0, tzinfo=None).isoformat()
    return value.isoformat() if isinstance(value, date) else str(value)


_BASIC_TEXT: Mapping[BasicType, Callable[[Any], str]] = {
    BasicType.BOOLEAN: _boolean_text,
    BasicType.FLOAT: lambda value: float_text(_number(value, Types.FLOAT())),
    BasicType.DOUBLE: lambda value: double_text(_number(value, Types.DOUBLE())),
    BasicType.INSTANT: _instant_text,
}
