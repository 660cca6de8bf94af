"""The kinds of configuration values, and how they are parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeVar

from penstock.common.config.locations import ON_HOST, PLACE, SHARED, parse_location, parse_path
from penstock.common.storage_url import Location, StorageUrl
from penstock.common.text.durations import parse_duration
from penstock.common.text.java_numbers import double_text
from penstock.common.text.memory_sizes import parse_memory_size
from penstock.common.time import Duration

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class OptionKind(Generic[T_co]):
    """One kind of value.

    ``parse`` takes a string, or a value that is converted already, and raises ``ValueError`` for
    anything but ``expected``.
    """

    expected: str
    parse: Callable[[object], T_co]


def _checked(
    expected: str, parse: Callable[[object], T], accept: Callable[[T], bool]
) -> OptionKind[T]:
    def parse_accepted(value: object) -> T:
        parsed = parse(value)
        if not accept(parsed):
            raise ValueError(expected)
        return parsed

    return OptionKind(expected, parse_accepted)


def integer(expected: str, accept: Callable[[int], bool]) -> OptionKind[int]:
    """Create a kind of whole numbers that ``accept`` accepts."""
    return _checked(expected, _parse_integer, accept)


def number(expected: str, accept: Callable[[float], bool]) -> OptionKind[float]:
    """Create a kind of numbers that ``accept`` accepts."""
    return _checked(expected, _parse_float, accept)


def at_least(shortest: timedelta, expected: str) -> OptionKind[timedelta]:
    """Create a kind of durations with a minimum."""
    return _checked(expected, _parse_duration, lambda duration: duration >= shortest)


def choice(*values: str, aliases: Mapping[str, str] | None = None) -> OptionKind[str]:
    """Create a kind of a few words, in upper or lower case, some with older names."""
    names = {value.lower(): value for value in values} | dict(aliases or {})
    expected = f"one of {', '.join(values)}"

    def parse(value: object) -> str:
        found = names.get(str(value).strip().lower())
        if found is None:
            raise ValueError(expected)
        return found

    return OptionKind(expected, parse)


def _parse_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return int(value)


def _parse_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    return float(value)


def _parse_boolean(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(value)
    return text == "true"


def _parse_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return double_text(value) if isinstance(value, float) else str(value)


def _parse_duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, Duration):
        return timedelta(microseconds=value.nanos // 1000)
    return parse_duration(_parse_text(value))


_DIRECTORY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _parse_path(value: object) -> Path:
    return _utf8(parse_path(str(value) if isinstance(value, Path) else _parse_text(value).strip()))


def _parse_location(value: object) -> Location:
    if isinstance(value, StorageUrl):
        return value
    return _utf8(
        parse_location(str(value) if isinstance(value, Path) else _parse_text(value).strip())
    )


def _utf8(location: T) -> T:
    # Journal and metadata name paths, and are UTF-8; a UnicodeEncodeError is a ValueError.
    str(location).encode()
    return location


def _parse_memory_size(value: object) -> int:
    return parse_memory_size(_parse_text(value))


STRING = OptionKind("a string", _parse_text)
BOOLEAN = OptionKind("true or false", _parse_boolean)
INTEGER = OptionKind("a whole number", _parse_integer)
POSITIVE_INTEGER = integer("a whole number above zero", lambda number: number > 0)
NON_NEGATIVE_INTEGER = integer("a whole number, zero or more", lambda number: number >= 0)
FLOAT = OptionKind("a number", _parse_float)
DURATION = OptionKind('a duration such as "500 ms" or "10 min"', _parse_duration)
POSITIVE_DURATION = _checked(
    'a duration above zero such as "500 ms" or "10 min"',
    _parse_duration,
    lambda duration: duration > timedelta(),
)
NON_NEGATIVE_DURATION = at_least(timedelta(), 'a duration such as "0 ms" or "10 s"')
LOCATION: OptionKind[Location] = OptionKind(PLACE, _parse_location)
LOCAL_PATH = OptionKind(SHARED, _parse_path)
HOST_PATH = OptionKind(ON_HOST, _parse_path)
DIRECTORY_NAME = _checked(
    "up to 128 letters, digits, '-', '_' and '.', a letter or digit first",
    _parse_text,
    lambda text: _DIRECTORY_NAME.fullmatch(text) is not None,
)
MEMORY_SIZE = OptionKind('a memory size such as "512 mb"', _parse_memory_size)
