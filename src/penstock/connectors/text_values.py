"""Values out of text, as Java's ``valueOf`` and ``parse`` methods read them."""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, TypeAlias

from penstock.common.java_numbers import round_to_float
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TypeInformation,
)

__all__ = [
    "WHOLE_NUMBERS",
    "TextParser",
    "boolean",
    "bytes_of_base64",
    "decimal_number",
    "parser_of",
    "whole_number",
]

TextParser: TypeAlias = Callable[[str], Any]

WHOLE_NUMBERS = {
    BasicType.BYTE: (-(2**7), 2**7 - 1),
    BasicType.SHORT: (-(2**15), 2**15 - 1),
    BasicType.INT: (-(2**31), 2**31 - 1),
    BasicType.LONG: (-(2**63), 2**63 - 1),
}
"""The lowest and the highest number of each type."""

_DIGITS = re.compile(r"[+-]?[0-9]+")


def parser_of(type_info: TypeInformation) -> TextParser | None:
    """Return the parser of a single value; None if a type is none of these.

    A parser raises ``ValueError`` where a text is no such value.
    """
    match type_info:
        case BasicTypeInfo(kind) if kind in WHOLE_NUMBERS:
            return lambda text: whole_number(text, kind)
        case BasicTypeInfo(kind):
            return _BASIC.get(kind)
        case SqlTimeTypeInfo(of_time):
            return _TIMES[of_time]
    return None


def whole_number(text: str, kind: BasicType) -> int:
    """Parse a number that must fit its type."""
    number = _any_whole_number(text)
    lowest, highest = WHOLE_NUMBERS[kind]
    if not lowest <= number <= highest:
        message = f"{number} is no {kind.value}"
        raise ValueError(message)
    return number


def boolean(text: str) -> bool:
    """Parse a truth value: all but ``true``, in any case, is false."""
    return text.strip().lower() == "true"


def _any_whole_number(text: str) -> int:
    stripped = text.strip()
    if not _DIGITS.fullmatch(stripped):
        message = f"{text!r} is no whole number"
        raise ValueError(message)
    return int(stripped)


def _number(text: str) -> float:
    if "_" in text:
        message = f"{text!r} is no number"
        raise ValueError(message)
    return float(text)


def decimal_number(text: str) -> decimal.Decimal:
    """Parse a number with all its digits."""
    try:
        number = decimal.Decimal(text.strip())
    except decimal.InvalidOperation:
        number = decimal.Decimal("NaN")
    if not number.is_finite() or "_" in text:
        message = f"{text!r} is no decimal number"
        raise ValueError(message)
    return number


def _character(text: str) -> str:
    if len(text) != 1:
        message = f"{text!r} is no single character"
        raise ValueError(message)
    return text


def _timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is not None:
        message = f"{text!r} has a time zone"
        raise ValueError(message)
    return moment


_BASIC: dict[BasicType, TextParser] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: boolean,
    BasicType.FLOAT: lambda text: round_to_float(_number(text)),
    BasicType.DOUBLE: _number,
    BasicType.BIG_INT: _any_whole_number,
    BasicType.BIG_DEC: decimal_number,
    BasicType.CHAR: _character,
}

_TIMES: dict[SqlTimeType, TextParser] = {
    SqlTimeType.DATE: lambda text: date.fromisoformat(text.strip()),
    SqlTimeType.TIME: lambda text: time.fromisoformat(text.strip()),
    SqlTimeType.TIMESTAMP: _timestamp,
}


def bytes_of_base64(text: str) -> bytes:
    """Decode bytes as Jackson writes them."""
    return base64.b64decode(text, validate=True)
