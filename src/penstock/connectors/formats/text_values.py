"""Parses values out of text, as Java's ``valueOf`` and ``parse`` methods do."""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, NoReturn, TypeAlias

from penstock.common import typeinfo
from penstock.common.text.java_numbers import round_to_float
from penstock.types.coercion import INTEGER_BITS

TextParser: TypeAlias = Callable[[str], Any]

INTEGER_RANGES = {
    kind: (-(1 << bits - 1), (1 << bits - 1) - 1) for kind, bits in INTEGER_BITS.items()
}
"""The lowest and the highest number of each type."""

_DIGITS = re.compile(r"[+-]?[0-9]+")


def reject(reason: str) -> NoReturn:
    """Raise ``ValueError``, which the callers of parsers and encoders handle."""
    raise ValueError(reason)


def text_parser(type_info: typeinfo.TypeInformation) -> TextParser | None:
    """Return the parser of a basic or time type, None for any other type.

    A parser raises ``ValueError`` for a text that is not such a value.
    """
    match type_info:
        case typeinfo.BasicTypeInfo(kind) if kind in INTEGER_RANGES:
            return lambda text: parse_integer(text, kind)
        case typeinfo.BasicTypeInfo(kind):
            return _BASIC.get(kind)
        case typeinfo.SqlTimeTypeInfo(of_time):
            return _TIMES[of_time]
    return None


def parse_integer(text: str, kind: typeinfo.BasicType) -> int:
    """Parse an integer that must be in the range of its type."""
    number = _big_integer(text)
    lowest, highest = INTEGER_RANGES[kind]
    if not lowest <= number <= highest:
        reject(f"{number} is not of type {kind.value}")
    return number


def parse_boolean(text: str) -> bool:
    """Parse a boolean: everything but ``true``, in any case, is false."""
    return text.strip().lower() == "true"


def parse_decimal(text: str) -> decimal.Decimal:
    """Parse a decimal number with all its digits."""
    try:
        number = decimal.Decimal(text.strip())
    except decimal.InvalidOperation:
        number = decimal.Decimal("NaN")
    if not number.is_finite() or "_" in text:
        reject(f"{text!r} is no decimal number")
    return number


def decode_base64(text: str) -> bytes:
    """Decode bytes as Jackson writes them."""
    return base64.b64decode(text, validate=True)


def _big_integer(text: str) -> int:
    stripped = text.strip()
    if not _DIGITS.fullmatch(stripped):
        reject(f"{text!r} is no whole number")
    return int(stripped)


def _double(text: str) -> float:
    if "_" in text:
        reject(f"{text!r} is no number")
    return float(text)


def _character(text: str) -> str:
    if len(text) != 1:
        reject(f"{text!r} is no single character")
    return text


def _timestamp(text: str) -> datetime:
    parsed = datetime.fromisoformat(text.strip())
    if parsed.tzinfo is not None:
        reject(f"{text!r} has a time zone")
    return parsed


_BASIC: dict[typeinfo.BasicType, TextParser] = {
    typeinfo.BasicType.STRING: str,
    typeinfo.BasicType.BOOLEAN: parse_boolean,
    typeinfo.BasicType.FLOAT: lambda text: round_to_float(_double(text)),
    typeinfo.BasicType.DOUBLE: _double,
    typeinfo.BasicType.BIG_INT: _big_integer,
    typeinfo.BasicType.BIG_DEC: parse_decimal,
    typeinfo.BasicType.CHAR: _character,
}

_TIMES: dict[typeinfo.SqlTimeType, TextParser] = {
    typeinfo.SqlTimeType.DATE: lambda text: date.fromisoformat(text.strip()),
    typeinfo.SqlTimeType.TIME: lambda text: time.fromisoformat(text.strip()),
    typeinfo.SqlTimeType.TIMESTAMP: _timestamp,
}
