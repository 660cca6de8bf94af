"""Python values as the text that COPY reads: one line per row, tabs between columns."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.errors import UnwritableValueError

__all__ = ["NULL", "encode_json", "encode_value", "encoder_of"]

NULL = "\\N"

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

Encode = Callable[[Any], str]


def _text(value: str) -> str:
    # What is printable holds no control character and no lone surrogate.
    if value.isprintable() and "\\" not in value:
        return value
    _check_text(value)
    return value.translate(_ESCAPES)


def _check_text(value: str) -> None:
    if "\0" in value:
        message = "PostgreSQL stores no text that holds the character NUL"
        raise ValueError(message)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = "it is no valid text: it holds a lone surrogate"
        raise ValueError(message) from error


def _plain(value: Any) -> str:
    return int.__repr__(value)


def _bytes(value: bytes | bytearray | memoryview) -> str:
    return "\\\\x" + value.hex()


def _interval(value: timedelta) -> str:
    # Days, seconds and microseconds apart: a day of an interval is not always 24 hours.
    return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"


def _instant(value: Instant) -> str:
    moment = datetime.fromtimestamp(value.seconds, UTC)
    return (moment + timedelta(microseconds=value.nanos // 1000)).isoformat()


def encode_json(value: Any) -> str:
    """Encode a value for a column of type json or jsonb; None is SQL's NULL."""
    if value is None:
        return NULL
    return _text(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_for_json))


def _for_json(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict() if hasattr(value, "_fields") else list(value)
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    message = f"a {type(value).__name__} is nothing that JSON has"
    raise TypeError(message)


def _array(value: list[Any] | tuple[Any, ...]) -> str:
    return _array_literal(value).translate(_ESCAPES)


def _array_literal(value: list[Any] | tuple[Any, ...]) -> str:
    return "{" + ",".join(map(_element, value)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return _array_literal(value)
    if isinstance(value, str):
        _check_text(value)
        literal = value
    elif isinstance(value, bytes | bytearray | memoryview):
        literal = "\\x" + value.hex()
    elif isinstance(value, dict | Row):
        literal = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_for_json)
        _check_text(literal)
    else:
        literal = encode_value(value)
    quoted = literal.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


_BY_CLASS: dict[type, Encode] = {
    type(None): lambda _: NULL,
    bool: lambda value: "t" if value else "f",
    int: int.__repr__,
    float: float.__repr__,
    str: _text,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    Decimal: str,
    UUID: str,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: _interval,
    Instant: _instant,
    dict: encode_json,
    Row: encode_json,
    list: _array,
    tuple: _array,
}

_BY_ANCESTOR: tuple[tuple[type, Encode], ...] = (
    (bool, _BY_CLASS[bool]),
    (int, _plain),
    (float, float.__repr__),
    (str, lambda value: _text(str.__str__(value))),
    (bytes, _bytes),
    (Decimal, str),
    (datetime, datetime.isoformat),
    (date, date.isoformat),
    (dict, encode_json),
    (list, _array),
    (tuple, _array),
)


def encode_value(value: Any) -> str:
    """Encode one value by its class.

    A dict becomes JSON, a list or tuple an array. Raises TypeError or ValueError with a sentence.
    """
    encode = _BY_CLASS.get(value.__class__)
    if encode is None:
        encode = _for_other(value)
    return encode(value)


def _for_other(value: Any) -> Encode:
    for ancestor, encode in _BY_ANCESTOR:
        if isinstance(value, ancestor):
            return encode
    if hasattr(value, "__index__"):  # numpy's integers
        return lambda number: int.__repr__(operator.index(number))
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return lambda scalar: encode_value(scalar.item())
    message = f"a {type(value).__name__} is nothing that PostgreSQL has"
    raise TypeError(message)


def encoder_of(columns: Mapping[int, str], json_columns: frozenset[str]) -> Encode:
    """Make a function that encodes the values of a row, without the end of the line.

    It raises `UnwritableValueError`, which names the column and the value. ``columns`` are names
    by position, where they are known.
    """
    special = {at for at, name in columns.items() if name in json_columns}
    by_class = _BY_CLASS
    fallback = encode_value

    def encode(values: Any) -> str:
        try:
            return "\t".join([by_class.get(value.__class__, fallback)(value) for value in values])
        except (TypeError, ValueError, OverflowError) as error:
            raise _blamed(values) from error

    def encode_with_json(values: Any) -> str:
        try:
            return "\t".join(
                [
                    encode_json(value) if at in special else encode_value(value)
                    for at, value in enumerate(values)
                ]
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise _blamed(values) from error

    def _blamed(values: Any) -> UnwritableValueError:
        for at, value in enumerate(values):
            try:
                encode_json(value) if at in special else encode_value(value)
            except (TypeError, ValueError, OverflowError) as error:
                return UnwritableValueError(columns.get(at, str(at + 1)), value, str(error))
        return UnwritableValueError(None, values, "its values change while they are written")

    return encode_with_json if special else encode
