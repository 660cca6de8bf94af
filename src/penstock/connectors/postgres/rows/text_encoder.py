"""Encodes Python values as COPY text: one line per row, tabs between columns."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.errors import UnwritableValueError

NULL = "\\N"
UNWRITABLE = (TypeError, ValueError, OverflowError)
"""What encoding an unsupported value raises."""

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

Encode = Callable[[Any], str]


def _text(value: str) -> str:
    # A printable string has no control characters and no lone surrogates.
    if value.isprintable() and "\\" not in value:
        return value
    _check_text(value)
    return value.translate(_ESCAPES)


def _check_text(value: str) -> None:
    if "\0" in value:
        message = "PostgreSQL does not store strings with the character NUL"
        raise ValueError(message)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = "it is not valid Unicode: it has a lone surrogate"
        raise ValueError(message) from error


def _bytes(value: bytes | bytearray | memoryview) -> str:
    return "\\\\x" + value.hex()


def _interval(value: timedelta) -> str:
    # Days are separate: a day of an interval is not always 24 hours.
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
    message = f"a {type(value).__name__} has no JSON representation"
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

_BASES = (bool, int, float, bytes, Decimal, datetime, date, dict, list, tuple)
"""Classes whose subclasses are encoded alike."""


def encode_value(value: Any) -> str:
    """Encode one value by its class.

    A dict becomes JSON, a list or tuple an array. Raises TypeError or ValueError.
    """
    encode = _BY_CLASS.get(value.__class__)
    if encode is None:
        encode = _for_other(value)
    return encode(value)


def _for_other(value: Any) -> Encode:
    if isinstance(value, str):
        return lambda text: _text(str.__str__(text))
    for base in _BASES:
        if isinstance(value, base):
            return _BY_CLASS[base]
    if hasattr(value, "__index__"):  # numpy's integers
        return lambda number: int.__repr__(operator.index(number))
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return lambda scalar: encode_value(scalar.item())
    message = f"a {type(value).__name__} has no PostgreSQL representation"
    raise TypeError(message)


class LineEncoder:
    """Encodes rows, each as a line with its line feed.

    ``positions`` are the positions of the columns' values in a row, ``columns`` their names if
    known. ``classes`` are the expected classes by position: other values take longer.
    """

    def __init__(
        self,
        positions: Sequence[int],
        columns: Sequence[str] | None,
        json_columns: frozenset[str] = frozenset(),
        classes: Mapping[int, type] | None = None,
    ) -> None:
        self._positions = positions
        self._columns = columns
        self._json = frozenset(at for at, name in enumerate(columns or ()) if name in json_columns)
        self.width = len(positions)
        self.arrays: set[int] = set()
        """The columns in which lists were written as arrays."""
        names: dict[str, Any] = {"float_text": float.__repr__, "json": encode_json}
        names |= {"other": encode_value, "backslash": "\\"}
        fields: list[str] = []
        for at, position in enumerate(positions):
            names[f"get{at}"] = self._by_class(at).get
            expected = (classes or {}).get(position)
            fields.append(_expression(at, position, expected, is_json=at in self._json))
        # One generated expression: a function call per value would take twice as long.
        source = "lambda v: f'" + "\\t".join(f"{{{field}}}" for field in fields) + "\\n'"
        self.line: Encode = eval(source, names)
        """Encodes a row; raises one of `UNWRITABLE`."""

    def error_for(self, values: Any) -> UnwritableValueError:
        """Return an error that names the column and value for which `line` raised."""
        for at, position in enumerate(self._positions):
            value = values[position]
            try:
                encode_json(value) if at in self._json else encode_value(value)
            except UNWRITABLE as error:
                name = str(at + 1) if self._columns is None else self._columns[at]
                return UnwritableValueError(name, value, str(error))
        return UnwritableValueError(None, values, "its values changed while they were encoded")

    def _by_class(self, at: int) -> dict[type, Encode]:
        def array(value: list[Any] | tuple[Any, ...]) -> str:
            self.arrays.add(at)
            return _array(value)

        return {**_BY_CLASS, list: array, tuple: array}


def _expression(at: int, position: int, expected: type | None, *, is_json: bool) -> str:
    """Return the source of an expression for a value; an f-string inserts a str or int as is."""
    if is_json:
        return f"json(v[{position}])"
    value, otherwise = f"(x := v[{position}]).__class__", f"get{at}(x.__class__, other)(x)"
    if expected is int:
        return f"x if {value} is int else {otherwise}"
    if expected is float:
        return f"float_text(x) if {value} is float else {otherwise}"
    is_plain = f"{value} is str and x.isprintable() and backslash not in x"
    return f"x if {is_plain} else {otherwise}"
