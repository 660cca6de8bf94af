"""Generators of values; each value is a function of its row's number.

The last two parameters of every function are the number of the row and the millisecond in which the
row is due.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from hashlib import shake_128
from typing import Any, TypeAlias

Generator: TypeAlias = Callable[[int, int], Any]

_FRACTION_BITS = 53


def noise(seed: bytes, row: int, size: int) -> bytes:
    """Return pseudo-random bytes of a row."""
    return shake_128(b"%b %d" % (seed, row)).digest(size)


def fraction(seed: bytes, row: int) -> float:
    """Return a number from 0 up to, not including, 1."""
    bits = int.from_bytes(noise(seed, row, 8), "big") >> (64 - _FRACTION_BITS)
    return bits / (1 << _FRACTION_BITS)


def whole(seed: bytes, low: int, high: int, row: int, due: int) -> int:
    """Return an integer of a range, both ends included."""
    # Twice the bits of the widest range, so that the bias of the remainder is negligible.
    return low + int.from_bytes(noise(seed, row, 16), "big") % (high - low + 1)


def real(seed: bytes, low: float, high: float, row: int, due: int) -> float:
    """Return a number of a range."""
    share = fraction(seed, row)
    return low * (1 - share) + high * share


def truth(seed: bytes, row: int, due: int) -> bool:
    """Return a boolean."""
    return noise(seed, row, 1)[0] % 2 == 1


def text(seed: bytes, length: int, varies: bool, row: int, due: int) -> str:
    """Return hexadecimal digits, as many as `length` or fewer."""
    size = _size(seed, length, varies, row)
    return noise(seed, row, (size + 1) // 2).hex()[:size]


def octets(seed: bytes, length: int, varies: bool, row: int, due: int) -> bytes:
    """Return bytes, as many as `length` or fewer."""
    return noise(seed, row, _size(seed, length, varies, row))


def past(seed: bytes, longest: int, make: Callable[[int], Any], row: int, due: int) -> Any:
    """Return a time at most `longest` milliseconds before the row is due."""
    return make(due - whole(seed, 0, longest, row, due) if longest else due)


def counted(start: int, make: Callable[[int], Any], row: int, due: int) -> Any:
    """Return the row's number plus a start."""
    return make(start + row)


def or_none(seed: bytes, rate: float, generator: Generator, row: int, due: int) -> Any:
    """Return None at a rate, else a value of the generator."""
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
    """Return a number as eight bytes."""
    return number.to_bytes(8, "big", signed=True)


def _size(seed: bytes, longest: int, varies: bool, row: int) -> int:
    return whole(seed + b" length", 1, longest, row, 0) if varies else longest
