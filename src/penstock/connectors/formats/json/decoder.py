"""Decodes rows from JSON: fast if a message has the declared types, lenient if not.

Most messages have exactly the declared types, and a decoder for the row type reads them at once. A
message it rejects is read again without types, and each value is converted to its declared type, as
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

from penstock.common import typeinfo
from penstock.common.row import Row
from penstock.common.text.java_numbers import double_text, round_to_float
from penstock.connectors.formats import text_values
from penstock.errors import InvalidJobError
from penstock.types.traversal import Convert, element_type, is_bytes, or_none

JsonDecoder: TypeAlias = Callable[[bytes], Any]

_TIME = re.compile(r"\d\d:\d\d:\d\d")
_MISSING = object()
_JSON = msgspec.json.Encoder(decimal_format="number")


def json_decoder(
    type_info: typeinfo.RowTypeInfo, fail_on_missing_field: bool, ignore_parse_errors: bool
) -> JsonDecoder:
    """Return a decoder of messages; it raises ``ValueError`` for what is not such a row."""
    exact = msgspec.json.Decoder(_exact_type(type_info, fail_on_missing_field))
    lenient = _Lenient(fail_on_missing_field, ignore_parse_errors).converter(type_info)
    finish = _finisher(type_info)
    assert finish is not None, "a row is always made of something else"
    # Keeps all digits of decimal numbers in a message that is not exact elsewhere; slower.
    hook = decimal.Decimal if _has_decimals(type_info) else None
    read, read_anything = exact.decode, msgspec.json.Decoder(float_hook=hook).decode

    def decode(message: bytes) -> Any:
        try:
            return finish(read(message))
        except ValueError:
            # Other types than declared, or no JSON at all: the lenient decoder finds out.
            return lenient(read_anything(message))

    return decode


def _has_decimals(type_info: typeinfo.TypeInformation) -> bool:
    match type_info:
        case typeinfo.BasicTypeInfo(kind):
            return kind is typeinfo.BasicType.BIG_DEC
        case typeinfo.RowTypeInfo(types, _):
            return any(map(_has_decimals, types))
        case typeinfo.MapTypeInfo(key, value):
            return _has_decimals(key) or _has_decimals(value)
    element = element_type(type_info)
    return element is not None and _has_decimals(element)


def _exact_type(type_info: typeinfo.TypeInformation, all_fields: bool) -> Any:
    """Return the type for msgspec, which accepts only values that mean the same in Flink."""
    match type_info:
        case typeinfo.BasicTypeInfo(kind) if kind in text_values.INTEGER_RANGES:
            lowest, highest = text_values.INTEGER_RANGES[kind]
            return Annotated[int, msgspec.Meta(ge=lowest, le=highest)] | None
        case typeinfo.BasicTypeInfo(kind) if kind in _EXACT:
            return _EXACT[kind] | None
        case typeinfo.SqlTimeTypeInfo():
            return str | None
        case typeinfo.RowTypeInfo(types, names):
            return _struct(types, names, all_fields) | None
        case typeinfo.MapTypeInfo(key, value) if key == typeinfo.Types.STRING():
            return dict[str, _exact_type(value, all_fields)] | None  # type: ignore[misc]
    if is_bytes(type_info):
        return bytes | None
    if (element := element_type(type_info)) is not None:
        return list[_exact_type(element, all_fields)] | None  # type: ignore[misc]
    if isinstance(type_info, typeinfo.MapTypeInfo):
        # Keys are strings in JSON, so such a map is never exact.
        return msgspec.UnsetType | None
    message = f"JSON has no values of type {type_info!r}"
    raise InvalidJobError(message)


def _struct(
    types: tuple[typeinfo.TypeInformation, ...], names: tuple[str, ...], all_fields: bool
) -> Any:
    fields: list[Any] = []
    for position, kind in enumerate(types):
        exact = _exact_type(kind, all_fields)
        fields.append((f"f{position}", exact) if all_fields else (f"f{position}", exact, None))
    rename = {f"f{position}": name for position, name in enumerate(names)}
    return msgspec.defstruct("JsonRow", fields, rename=rename, gc=False)


_EXACT: dict[typeinfo.BasicType, Any] = {
    typeinfo.BasicType.STRING: str,
    typeinfo.BasicType.BOOLEAN: bool,
    typeinfo.BasicType.FLOAT: float,
    typeinfo.BasicType.DOUBLE: float,
    typeinfo.BasicType.BIG_INT: int,
    typeinfo.BasicType.BIG_DEC: decimal.Decimal,
    typeinfo.BasicType.CHAR: Annotated[str, msgspec.Meta(min_length=1, max_length=1)],
}


def _finisher(type_info: typeinfo.TypeInformation) -> Convert | None:
    """Return what converts a value that msgspec read; None if it stays as it is."""
    match type_info:
        case typeinfo.BasicTypeInfo(typeinfo.BasicType.FLOAT):
            return or_none(round_to_float)
        case typeinfo.BasicTypeInfo(typeinfo.BasicType.BIG_DEC):
            return or_none(_finite)
        case typeinfo.SqlTimeTypeInfo(kind):
            return or_none(_TIMES[kind])
        case typeinfo.RowTypeInfo(types, names):
            return or_none(_row_finisher([_finisher(kind) for kind in types], list(names)))
        case typeinfo.MapTypeInfo(_, value):
            inner = _finisher(value)
            return inner and or_none(lambda v: {k: inner(item) for k, item in v.items()})
    element = element_type(type_info)
    each = None if element is None else _finisher(element)
    return each and or_none(lambda values: [each(value) for value in values])


def _row_finisher(finishers: list[Convert | None], names: list[str]) -> Convert:
    values_of = msgspec.structs.astuple
    busy = [(index, finish) for index, finish in enumerate(finishers) if finish is not None]

    def finish_row(read: Any) -> Row:
        row = Row(*values_of(read))
        for index, finish in busy:
            row[index] = finish(row[index])
        row.set_field_names(names)
        return row

    return finish_row


class _Lenient:
    """Creates converters from untyped JSON to the declared types."""

    def __init__(self, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        self._fail_on_missing_field = fail_on_missing_field
        self._ignore_parse_errors = ignore_parse_errors

    def converter(self, type_info: typeinfo.TypeInformation) -> Convert:
        convert = self._plain(type_info)
        if not self._ignore_parse_errors:
            return or_none(convert)

        def convert_or_none(value: Any) -> Any:
            try:
                return None if value is None else convert(value)
            except ValueError:
                return None

        return convert_or_none

    def _plain(self, type_info: typeinfo.TypeInformation) -> Convert:
        match type_info:
            case typeinfo.RowTypeInfo(types, names):
                return self._row([self.converter(kind) for kind in types], names)
            case typeinfo.MapTypeInfo(key, value):
                key_of, value_of = self.converter(key), self.converter(value)
                return lambda v: {key_of(k): value_of(item) for k, item in _object(v).items()}
            case typeinfo.SqlTimeTypeInfo(of_time):
                return lambda value: _TIMES[of_time](_text(value))
            case typeinfo.BasicTypeInfo(typeinfo.BasicType.STRING):
                return _text
            case typeinfo.BasicTypeInfo(typeinfo.BasicType.BIG_DEC):
                return _decimal
            case typeinfo.BasicTypeInfo(typeinfo.BasicType.BOOLEAN):
                return lambda v: (
                    v if v is True or v is False else text_values.parse_boolean(_text(v))
                )
            case typeinfo.BasicTypeInfo(kind) if kind in (
                typeinfo.BasicType.INT,
                typeinfo.BasicType.LONG,
            ):
                return lambda value: _integer(value, kind)
        if is_bytes(type_info):
            return lambda value: text_values.decode_base64(_text(value))
        if (element := element_type(type_info)) is not None:
            each = self.converter(element)
            return lambda value: [each(item) for item in _array(value)]
        parse = text_values.text_parser(type_info)
        assert parse is not None, "other types are refused before"
        return lambda value: parse(_text(value).strip())

    def _row(self, converters: list[Convert], names: tuple[str, ...]) -> Convert:
        make, fields = Row(*names), list(zip(names, converters, strict=True))

        def convert(value: Any) -> Row:
            found = _object(value)
            return make(*(self._field(found, name, of) for name, of in fields))

        return convert

    def _field(self, found: Mapping[str, Any], name: str, convert: Convert) -> Any:
        value = found.get(name, _MISSING)
        if value is not _MISSING:
            return convert(value)
        if self._fail_on_missing_field:
            text_values.reject(f"Could not find field with name {name!r}.")
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
    """Round a number as a decoder without decimals does, which rejects the same numbers."""
    rounded = float(number)
    if not math.isfinite(rounded):
        text_values.reject(f"{number} is out of range")
    return rounded


def _decimal(value: Any) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else text_values.parse_decimal(_text(value))


def _finite(number: decimal.Decimal) -> decimal.Decimal:
    if not number.is_finite():
        text_values.reject(f"{number} is no decimal number")
    return number


def _integer(value: Any, kind: typeinfo.BasicType) -> int:
    lowest, highest = text_values.INTEGER_RANGES[kind]
    if isinstance(value, (float, decimal.Decimal)) and lowest <= value <= highest:
        return int(value)
    return text_values.parse_integer(_text(value), kind)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        text_values.reject(f"no JSON object but {_text(value)}")
    return value


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        text_values.reject(f"no JSON array but {_text(value)}")
    return value


def _utc_time(text: str) -> time:
    plain = text.removesuffix("Z")
    if not _TIME.fullmatch(plain):
        text_values.reject(f"{text!r} is no time in UTC such as 12:30:00Z")
    return time.fromisoformat(plain)


def _utc_timestamp(text: str) -> datetime:
    parsed = datetime.fromisoformat(text.removesuffix("Z"))
    if parsed.tzinfo is not None or "T" not in text:
        text_values.reject(f"{text!r} is no timestamp in UTC such as 2026-01-31T12:30:00Z")
    return parsed


_TIMES: dict[typeinfo.SqlTimeType, Callable[[str], Any]] = {
    typeinfo.SqlTimeType.DATE: date.fromisoformat,
    typeinfo.SqlTimeType.TIME: _utc_time,
    typeinfo.SqlTimeType.TIMESTAMP: _utc_timestamp,
}
