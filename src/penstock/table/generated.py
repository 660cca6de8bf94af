"""Values of generated rows: each is a function of its row's number, whoever makes it again.

Every function here takes what is its own first, and then the number of the row and the
millisecond in which the row is due.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from hashlib import shake_128
from typing import Any, TypeAlias

__all__ = [
    "Generator",
    "counted",
    "date_of",
    "eight_bytes",
    "octets",
    "or_none",
    "past",
    "real",
    "text",
    "time_of",
    "timestamp_of",
    "truth",
    "whole",
]

Generator: TypeAlias = Callable[[int, int], Any]

_FRACTION_BITS = 53


def noise(seed: bytes, row: int, size: int) -> bytes:
    """Return bytes that look random, always the same ones."""
    return shake_128(b"%b %d" % (seed, row)).digest(size)


def fraction(seed: bytes, row: int) -> float:
    """Return a number from 0 to 1, without 1."""
    bits = int.from_bytes(noise(seed, row, 8), "big") >> (64 - _FRACTION_BITS)
    return bits / (1 << _FRACTION_BITS)


def whole(seed: bytes, low: int, high: int, row: int, due: int) -> int:
    """Return a whole number between two, both of them included."""
    # Twice the bits of the widest range: what the remainder prefers is too little to be seen.
    return low + int.from_bytes(noise(seed, row, 16), "big") % (high - low + 1)


def real(seed: bytes, low: float, high: float, row: int, due: int) -> float:
    """Return a number between two."""
    share = fraction(seed, row)
    return low * (1 - share) + high * share


def truth(seed: bytes, row: int, due: int) -> bool:
    """Return one of the two."""
    return noise(seed, row, 1)[0] % 2 == 1


def text(seed: bytes, length: int, varies: bool, row: int, due: int) -> str:
    """Return so many hexadecimal digits, or from one to so many."""
    size = _size(seed, length, varies, row)
    return noise(seed, row, (size + 1) // 2).hex()[:size]


def octets(seed: bytes, length: int, varies: bool, row: int, due: int) -> bytes:
    """Return so many bytes, or from one to so many."""
    return noise(seed, row, _size(seed, length, varies, row))


def past(seed: bytes, longest: int, make: Callable[[int], Any], row: int, due: int) -> Any:
    """Return a moment at most so many milliseconds before the row is due."""
    return make(due - whole(seed, 0, longest, row, due) if longest else due)


def counted(start: int, make: Callable[[int], Any], row: int, due: int) -> Any:
    """Return the number of the row, counted from a start."""
    return make(start + row)


def or_none(seed: bytes, rate: float, generator: Generator, row: int, due: int) -> Any:
    """Return None at a rate, else what the generator makes."""
    return None if fraction(seed + b" none", row) < rate else generator(row, due)


def timestamp_of(moment: int) -> datetime:
    """Return a millisecond since the epoch as date and time, in UTC."""
    seconds, millis = divmod(moment, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None, microsecond=millis * 1000)


def date_of(moment: int) -> date:
    """Return the date of a millisecond since the epoch, in UTC."""
    return timestamp_of(moment).date()


def time_of(moment: int) -> time:
    """Return the time of day of a millisecond since the epoch, in UTC."""
    return timestamp_of(moment).time()


def eight_bytes(number: int) -> bytes:
    """Return a number as it is kept in eight bytes."""
    return number.to_bytes(8, "big", signed=True)


def _size(seed: bytes, longest: int, varies: bool, row: int) -> int:
    return whole(seed + b" length", 1, longest, row, 0) if varies else longest
