"""Rows out of JSON: fast where a message has the declared types, forgiving where not.

Most messages have exactly the declared types; a decoder made for the row type reads them at
once. What it refuses is read again without types, and each value taken for what is meant, as
Flink does with every message.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, TypeAlias

import msgspec

from penstock.common.java_numbers import double_text, round_to_float
from penstock.common.row import Row
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
from penstock.connectors.text_values import (
    WHOLE_NUMBERS,
    boolean,
    bytes_of_base64,
    decimal_number,
    parser_of,
    whole_number,
)
from penstock.errors import InvalidJobError

__all__ = ["JsonDecoder", "json_decoder"]

JsonDecoder: TypeAlias = Callable[[bytes], Any]
_Converter: TypeAlias = Callable[[Any], Any]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_TIME = re.compile(r"\d\d:\d\d:\d\d")
_MISSING = object()
_JSON = msgspec.json.Encoder(decimal_format="number")


def json_decoder(
    type_info: RowTypeInfo, *, fail_on_missing_field: bool, ignore_parse_errors: bool
) -> JsonDecoder:
    """Make a decoder of messages, which raises ``ValueError`` for what is no such row."""
    exact = msgspec.json.Decoder(_exact_type(type_info, fail_on_missing_field))
    forgiving = _Forgiving(fail_on_missing_field, ignore_parse_errors).converter(type_info)
    finish = _finisher(type_info)
    assert finish is not None, "a row is always made of something else"
    # All digits of a decimal number, also in a message that is not exact elsewhere; slower.
    hook = decimal.Decimal if _has_decimals(type_info) else None
    read, read_anything = exact.decode, msgspec.json.Decoder(float_hook=hook).decode

    def decode(message: bytes) -> Any:
        try:
            return finish(read(message))
        except ValueError:
            # Not the declared types, or no JSON at all: the second reading tells.
            return forgiving(read_anything(message))

    return decode


def _has_decimals(type_info: TypeInformation) -> bool:
    match type_info:
        case BasicTypeInfo(kind):
            return kind is BasicType.BIG_DEC
        case RowTypeInfo(types, _):
            return any(map(_has_decimals, types))
        case MapTypeInfo(key, value):
            return _has_decimals(key) or _has_decimals(value)
    element = _element(type_info)
    return element is not None and _has_decimals(element)


def _exact_type(type_info: TypeInformation, all_fields: bool) -> Any:
    """Return what msgspec shall expect: only values that mean the same in Flink."""
    match type_info:
        case BasicTypeInfo(kind) if kind in WHOLE_NUMBERS:
            lowest, highest = WHOLE_NUMBERS[kind]
            return Annotated[int, msgspec.Meta(ge=lowest, le=highest)] | None
        case BasicTypeInfo(kind) if kind in _EXACT:
            return _EXACT[kind] | None
        case SqlTimeTypeInfo():
            return str | None
        case RowTypeInfo(types, names):
            return _struct(types, names, all_fields) | None
        case MapTypeInfo(key, value) if key == Types.STRING():
            return dict[str, _exact_type(value, all_fields)] | None  # type: ignore[misc]
    if type_info == _BYTES:
        return bytes | None
    if (element := _element(type_info)) is not None:
        return list[_exact_type(element, all_fields)] | None  # type: ignore[misc]
    if isinstance(type_info, MapTypeInfo):
        # Keys are strings in JSON: never exact.
        return msgspec.UnsetType | None
    message = f"JSON has no values of type {type_info!r}"
    raise InvalidJobError(message)


def _struct(types: tuple[TypeInformation, ...], names: tuple[str, ...], all_fields: bool) -> Any:
    fields: list[Any] = []
    for position, kind in enumerate(types):
        exact = _exact_type(kind, all_fields)
        fields.append((f"f{position}", exact) if all_fields else (f"f{position}", exact, None))
    rename = {f"f{position}": name for position, name in enumerate(names)}
    return msgspec.defstruct("JsonRow", fields, rename=rename, gc=False)


_EXACT: dict[BasicType, Any] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    BasicType.BIG_INT: int,
    BasicType.BIG_DEC: decimal.Decimal,
    BasicType.CHAR: Annotated[str, msgspec.Meta(min_length=1, max_length=1)],
}


def _element(type_info: TypeInformation) -> TypeInformation | None:
    match type_info:
        case (
            ListTypeInfo(element)
            | ObjectArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
        ):
            return element
    return None


def _finisher(type_info: TypeInformation) -> _Converter | None:
    """Make of what msgspec read what the program sees; None if that is the same."""
    match type_info:
        case BasicTypeInfo(BasicType.FLOAT):
            return _or_none(round_to_float)
        case BasicTypeInfo(BasicType.BIG_DEC):
            return _or_none(_finite)
        case SqlTimeTypeInfo(kind):
            return _or_none(_TIMES[kind])
        case RowTypeInfo(types, names):
            return _or_none(_row_finisher([_finisher(kind) for kind in types], list(names)))
        case MapTypeInfo(_, value):
            inner = _finisher(value)
            return inner and _or_none(lambda v: {k: inner(item) for k, item in v.items()})
    element = None if type_info == _BYTES else _element(type_info)
    each = None if element is None else _finisher(element)
    return each and _or_none(lambda values: [each(value) for value in values])


def _row_finisher(finishers: list[_Converter | None], names: list[str]) -> _Converter:
    values_of = msgspec.structs.astuple
    busy = [(index, finish) for index, finish in enumerate(finishers) if finish is not None]

    def finish_row(read: Any) -> Row:
        row = Row(*values_of(read))
        for index, finish in busy:
            row[index] = finish(row[index])
        row.set_field_names(names)
        return row

    return finish_row


def _or_none(convert: _Converter) -> _Converter:
    return lambda value: None if value is None else convert(value)


class _Forgiving:
    """Makes converters of untyped JSON that take values for what is meant."""

    def __init__(self, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        self._fail_on_missing_field = fail_on_missing_field
        self._ignore_parse_errors = ignore_parse_errors

    def converter(self, type_info: TypeInformation) -> _Converter:
        convert = self._plain(type_info)
        if not self._ignore_parse_errors:
            return _or_none(convert)

        def convert_or_none(value: Any) -> Any:
            try:
                return None if value is None else convert(value)
            except ValueError:
                return None

        return convert_or_none

    def _plain(self, type_info: TypeInformation) -> _Converter:
        match type_info:
            case RowTypeInfo(types, names):
                return self._row([self.converter(kind) for kind in types], names)
            case MapTypeInfo(key, value):
                key_of, value_of = self.converter(key), self.converter(value)
                return lambda v: {key_of(k): value_of(item) for k, item in _object(v).items()}
            case SqlTimeTypeInfo(of_time):
                return lambda value: _TIMES[of_time](_text(value))
            case BasicTypeInfo(BasicType.STRING):
                return _text
            case BasicTypeInfo(BasicType.BIG_DEC):
                return _decimal
            case BasicTypeInfo(BasicType.BOOLEAN):
                return lambda value: value if value is True or value is False else _true(value)
            case BasicTypeInfo(kind) if kind in (BasicType.INT, BasicType.LONG):
                return lambda value: _whole_number(value, kind)
        if type_info == _BYTES:
            return lambda value: bytes_of_base64(_text(value))
        if (element := _element(type_info)) is not None:
            each = self.converter(element)
            return lambda value: [each(item) for item in _array(value)]
        parse = parser_of(type_info)
        assert parse is not None, "other types are refused before"
        return lambda value: parse(_text(value).strip())

    def _row(self, converters: list[_Converter], names: tuple[str, ...]) -> _Converter:
        fields = list(zip(names, converters, strict=True))
        field_names = list(names)

        def convert(value: Any) -> Row:
            there = _object(value)
            row = Row(*(self._field(there, name, of) for name, of in fields))
            row.set_field_names(field_names)
            return row

        return convert

    def _field(self, there: Mapping[str, Any], name: str, convert: _Converter) -> Any:
        value = there.get(name, _MISSING)
        if value is not _MISSING:
            return convert(value)
        if self._fail_on_missing_field:
            message = f"Could not find field with name {name!r}."
            raise ValueError(message)
        return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return double_text(_double(value))
    return _JSON.encode(value).decode()


def _double(number: decimal.Decimal) -> float:
    """Round a number as the reading without decimals does, which refuses the same ones."""
    rounded = float(number)
    if not math.isfinite(rounded):
        message = f"{number} is out of range"
        raise ValueError(message)
    return rounded


def _decimal(value: Any) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal_number(_text(value))


def _finite(number: decimal.Decimal) -> decimal.Decimal:
    if not number.is_finite():
        message = f"{number} is no decimal number"
        raise ValueError(message)
    return number


def _true(value: Any) -> bool:
    return boolean(_text(value))


def _whole_number(value: Any, kind: BasicType) -> int:
    lowest, highest = WHOLE_NUMBERS[kind]
    if isinstance(value, (float, decimal.Decimal)) and lowest <= value <= highest:
        return int(value)
    return whole_number(_text(value), kind)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        message = f"no JSON object but {_text(value)}"
        raise ValueError(message)
    return value


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        message = f"no JSON array but {_text(value)}"
        raise ValueError(message)
    return value


def _utc_time(text: str) -> time:
    plain = text.removesuffix("Z")
    if not _TIME.fullmatch(plain):
        message = f"{text!r} is no time in UTC such as 12:30:00Z"
        raise ValueError(message)
    return time.fromisoformat(plain)


def _utc_timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text.removesuffix("Z"))
    if moment.tzinfo is not None or "T" not in text:
        message = f"{text!r} is no timestamp in UTC such as 2026-01-31T12:30:00Z"
        raise ValueError(message)
    return moment


_TIMES: dict[SqlTimeType, Callable[[str], Any]] = {
    SqlTimeType.DATE: date.fromisoformat,
    SqlTimeType.TIME: _utc_time,
    SqlTimeType.TIMESTAMP: _utc_timestamp,
}
