"""Values of a column that a state cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from decimal import DecimalException
from typing import Any, NamedTuple

from penstock.errors import TypeMismatchError, UnstableKeyError

Convert = Callable[[Any], Any]

REFUSED = (
    TypeMismatchError,
    UnstableKeyError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    DecimalException,
)
"""What a conversion raises for a value that it does not accept."""


NOT_OF_TYPE = "it is not of that type"


class BadValue(NamedTuple):
    """A value that was refused, by its row in the batch."""

    row: int
    reason: str


def convert_each(values: list[Any], convert: Convert) -> tuple[list[Any], list[BadValue]]:
    """Convert values one by one; one that is refused is None in the result, and listed."""
    try:
        return list(map(convert, values)), []
    except REFUSED:
        pass  # at least one is refused: which ones is found below
    converted: list[Any] = []
    bad: list[BadValue] = []
    for row, value in enumerate(values):
        try:
            converted.append(convert(value))
        except REFUSED as error:
            converted.append(None)
            bad.append(BadValue(row, _reason(error)))
    return converted, bad


def _reason(error: BaseException) -> str:
    if isinstance(error, TypeMismatchError):
        return f"field {error.path} does not fit" if error.path else NOT_OF_TYPE
    if isinstance(error, LookupError):
        return f"it has no field {error}"
    return NOT_OF_TYPE
