"""Encodes rows as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import msgspec

from penstock.common import typeinfo
from penstock.common.text.java_numbers import double_text, float_text
from penstock.connectors.formats.text_values import reject
from penstock.errors import InvalidJobError
from penstock.types.coercion import INTEGER_BITS
from penstock.types.traversal import Convert, TypeVisitor, or_none

JsonEncoder: TypeAlias = Callable[[Any], bytes]

_INT64_LIMIT = 2**63


def json_encoder(type_info: typeinfo.RowTypeInfo) -> JsonEncoder:
    """Return an encoder of rows; it raises ``ValueError`` or ``TypeError`` for other values."""
    # Not `_ToJson.visit`: None is not a row.
    convert = TypeVisitor.visit(_ToJson(), type_info)
    encode = msgspec.json.Encoder().encode
    return lambda element: encode(convert(element))


class _ToJson(TypeVisitor[Convert]):
    """Converts values to what msgspec encodes as JSON; any value may be None."""

    def visit(self, type_info: typeinfo.TypeInformation) -> Convert:
        return or_none(super().visit(type_info))

    def visit_basic(self, type_info: typeinfo.BasicTypeInfo) -> Convert:
        kind = type_info.kind
        if kind in _CLASSES:
            return _of_class(_CLASSES[kind], kind)
        return _NUMBERS.get(kind) or self.unsupported(type_info)

    def visit_sql_time(self, type_info: typeinfo.SqlTimeTypeInfo) -> Convert:
        return _TIMES[type_info.kind]

    def visit_bytes(self, type_info: typeinfo.TypeInformation) -> Convert:
        return bytes

    def visit_array(self, element: Convert, type_info: typeinfo.TypeInformation) -> Convert:
        return lambda values: [element(value) for value in values]

    def visit_map(self, key: Convert, value: Convert, type_info: typeinfo.MapTypeInfo) -> Convert:
        if type_info.key != typeinfo.Types.STRING():
            self.unsupported(type_info)
        return lambda items: {k: value(item) for k, item in items.items()}

    def visit_row(self, fields: list[Convert], type_info: typeinfo.RowTypeInfo) -> Convert:
        names = type_info.field_names

        def convert(row: Any) -> dict[str, Any]:
            if len(row) != len(names):
                reject(f"{len(names)} fields expected, not {len(row)}")
            return {name: of(value) for name, of, value in zip(names, fields, row, strict=True)}

        return convert

    def unsupported(self, type_info: typeinfo.TypeInformation) -> NoReturn:
        message = f"JSON has no values of type {type_info!r}"
        raise InvalidJobError(message)


def _of_class(expected: type, kind: typeinfo.BasicType) -> Convert:
    def check(value: Any) -> Any:
        if type(value) is not expected:
            message = f"{value!r} is not of type {kind.value}"
            raise TypeError(message)
        return value

    return check


def _double(value: Any) -> Any:
    number = float(value)
    # JSON has no infinities and no NaN; Jackson writes their names.
    return number if math.isfinite(number) else double_text(number)


def _float(value: Any) -> Any:
    text = float_text(float(value))
    return msgspec.Raw(text.encode()) if math.isfinite(value) else text


def _big_integer(value: Any) -> Any:
    number = int(value)
    in_range = -_INT64_LIMIT <= number < _INT64_LIMIT
    return number if in_range else msgspec.Raw(str(number).encode())


def _decimal(value: Any) -> Any:
    if not value.is_finite():
        reject(f"{value!r} is no number in JSON")
    return msgspec.Raw(str(value).encode())


_CLASSES: dict[typeinfo.BasicType, type] = {
    **dict.fromkeys(INTEGER_BITS, int),
    typeinfo.BasicType.STRING: str,
    typeinfo.BasicType.CHAR: str,
    typeinfo.BasicType.BOOLEAN: bool,
}
_NUMBERS: dict[typeinfo.BasicType, Convert] = {
    typeinfo.BasicType.DOUBLE: _double,
    typeinfo.BasicType.FLOAT: _float,
    typeinfo.BasicType.BIG_INT: _big_integer,
    typeinfo.BasicType.BIG_DEC: _decimal,
}
_TIMES: dict[typeinfo.SqlTimeType, Convert] = {
    typeinfo.SqlTimeType.DATE: lambda value: value.isoformat(),
    typeinfo.SqlTimeType.TIME: lambda value: value.isoformat("seconds") + "Z",
    typeinfo.SqlTimeType.TIMESTAMP: lambda value: value.isoformat() + "Z",
}
