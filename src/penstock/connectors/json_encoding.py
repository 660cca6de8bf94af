"""JSON out of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from penstock.common.java_numbers import double_text, float_text
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
    TypeInformation,
    Types,
)
from penstock.connectors.text_values import WHOLE_NUMBERS
from penstock.errors import InvalidJobError

__all__ = ["JsonEncoder", "json_encoder"]

JsonEncoder: TypeAlias = Callable[[Any], bytes]
_Converter: TypeAlias = Callable[[Any], Any]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_LARGEST = 2**63


def json_encoder(type_info: RowTypeInfo) -> JsonEncoder:
    """Make an encoder of rows; it raises ``ValueError`` or ``TypeError`` for other values."""
    convert = _row(type_info)
    encode = msgspec.json.Encoder().encode
    return lambda element: encode(convert(element))


def _converter(type_info: TypeInformation) -> _Converter:
    convert = _plain(type_info)
    return lambda value: None if value is None else convert(value)


def _plain(type_info: TypeInformation) -> _Converter:
    match type_info:
        case RowTypeInfo():
            return _row(type_info)
        case BasicTypeInfo(kind) if kind in WHOLE_NUMBERS:
            return _of_class(int, kind)
        case BasicTypeInfo(BasicType.STRING | BasicType.CHAR as kind):
            return _of_class(str, kind)
        case BasicTypeInfo(BasicType.BOOLEAN as kind):
            return _of_class(bool, kind)
        case BasicTypeInfo(kind) if kind in _NUMBERS:
            return _NUMBERS[kind]
        case SqlTimeTypeInfo(kind):
            return _TIMES[kind]
        case MapTypeInfo(key, value) if key == Types.STRING():
            item_of = _converter(value)
            return lambda items: {k: item_of(item) for k, item in items.items()}
    if type_info == _BYTES:
        return bytes
    match type_info:
        case (
            ListTypeInfo(element)
            | ObjectArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
        ):
            each = _converter(element)
            return lambda values: [each(value) for value in values]
    message = f"JSON has no values of type {type_info!r}"
    raise InvalidJobError(message)


def _row(type_info: RowTypeInfo) -> _Converter:
    names = type_info.field_names
    converters = [_converter(kind) for kind in type_info.field_types]

    def convert(row: Any) -> dict[str, Any]:
        if len(row) != len(names):
            message = f"{len(names)} fields expected, not {len(row)}"
            raise ValueError(message)
        values = zip(names, converters, row, strict=True)
        return {name: of(value) for name, of, value in values}

    return convert


def _of_class(expected: type, kind: BasicType) -> _Converter:
    def check(value: Any) -> Any:
        if type(value) is not expected:
            message = f"{value!r} is no {kind.value}"
            raise TypeError(message)
        return value

    return check


def _double(value: Any) -> Any:
    number = float(value)
    # JSON has no such numbers; Jackson writes their names.
    return number if math.isfinite(number) else double_text(number)


def _float(value: Any) -> Any:
    text = float_text(float(value))
    return msgspec.Raw(text.encode()) if math.isfinite(value) else text


def _big_integer(value: Any) -> Any:
    number = int(value)
    return number if -_LARGEST <= number < _LARGEST else msgspec.Raw(str(number).encode())


def _decimal(value: Any) -> Any:
    if not value.is_finite():
        message = f"{value!r} is no number in JSON"
        raise ValueError(message)
    return msgspec.Raw(str(value).encode())


_NUMBERS: dict[BasicType, _Converter] = {
    BasicType.DOUBLE: _double,
    BasicType.FLOAT: _float,
    BasicType.BIG_INT: _big_integer,
    BasicType.BIG_DEC: _decimal,
}

_TIMES: dict[SqlTimeType, _Converter] = {
    SqlTimeType.DATE: lambda value: value.isoformat(),
    SqlTimeType.TIME: lambda value: value.isoformat("seconds") + "Z",
    SqlTimeType.TIMESTAMP: lambda value: value.isoformat() + "Z",
}
