"""Kinds of configuration values: what they look like and how they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import unquote, urlsplit

from penstock.common.durations import parse_duration
from penstock.common.java_numbers import double_text
from penstock.common.memory_sizes import parse_memory_size
from penstock.common.time import Duration

__all__ = [
    "BOOLEAN",
    "DURATION",
    "FLOAT",
    "INTEGER",
    "LOCAL_PATH",
    "MEMORY_SIZE",
    "NAME_OF_A_DIRECTORY",
    "NON_NEGATIVE_DURATION",
    "NON_NEGATIVE_INTEGER",
    "POSITIVE_DURATION",
    "POSITIVE_INTEGER",
    "STRING",
    "OptionKind",
    "at_least",
    "choice",
    "integer",
    "number",
]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class OptionKind(Generic[T_co]):
    """One kind of value.

    ``parse`` takes what was stored, a string or already a value, and raises ``ValueError``
    for anything else than ``expected``.
    """

    expected: str
    parse: Callable[[object], T_co]


def integer(expected: str, accept: Callable[[int], bool]) -> OptionKind[int]:
    """Create a kind of whole numbers that ``accept`` lets through."""

    def parse(value: object) -> int:
        number = _parse_integer(value)
        if not accept(number):
            raise ValueError(expected)
        return number

    return OptionKind(expected, parse)


def number(expected: str, accept: Callable[[float], bool]) -> OptionKind[float]:
    """Create a kind of numbers that ``accept`` lets through."""

    def parse(value: object) -> float:
        given = _parse_float(value)
        if not accept(given):
            raise ValueError(expected)
        return given

    return OptionKind(expected, parse)


def at_least(shortest: timedelta, expected: str) -> OptionKind[timedelta]:
    """Create a kind of durations that are not shorter than one."""

    def parse(value: object) -> timedelta:
        duration = _parse_duration(value)
        if duration < shortest:
            raise ValueError(value)
        return duration

    return OptionKind(expected, parse)


def choice(*values: str, aliases: Mapping[str, str] | None = None) -> OptionKind[str]:
    """Create a kind of one of a few words, in any case, some with older spellings."""
    spellings = {value.lower(): value for value in values} | dict(aliases or {})
    expected = f"one of {', '.join(values)}"

    def parse(value: object) -> str:
        found = spellings.get(str(value).strip().lower())
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


def _parse_positive_duration(value: object) -> timedelta:
    duration = _parse_duration(value)
    if duration <= timedelta():
        raise ValueError(value)
    return duration


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DIRECTORY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _parse_local_path(value: object) -> Path:
    text = str(value) if isinstance(value, Path) else _parse_text(value).strip()
    if _SCHEME.match(text):
        parts = urlsplit(text)
        if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
            raise ValueError(value)
        text = unquote(parts.path)
    if not text:
        raise ValueError(value)
    return Path(text).absolute()


def _parse_directory_name(value: object) -> str:
    text = _parse_text(value)
    if not _DIRECTORY_NAME.fullmatch(text):
        raise ValueError(value)
    return text


def _parse_memory_size(value: object) -> int:
    return parse_memory_size(_parse_text(value))


STRING = OptionKind("a string", _parse_text)
BOOLEAN = OptionKind("true or false", _parse_boolean)
INTEGER = OptionKind("a whole number", _parse_integer)
POSITIVE_INTEGER = integer("a whole number above zero", lambda number: number > 0)
NON_NEGATIVE_INTEGER = integer("a whole number, zero or more", lambda number: number >= 0)
FLOAT = OptionKind("a number", _parse_float)
DURATION = OptionKind('a duration such as "500 ms" or "10 min"', _parse_duration)
POSITIVE_DURATION = OptionKind(
    'a duration above zero such as "500 ms" or "10 min"', _parse_positive_duration
)
NON_NEGATIVE_DURATION = at_least(timedelta(), 'a duration such as "0 ms" or "10 s"')
LOCAL_PATH = OptionKind(
    "a path in a file system that driver and executors share, plain or as file:// (object stores "
    "such as s3:// are not in this version)",
    _parse_local_path,
)
NAME_OF_A_DIRECTORY = OptionKind(
    "up to 128 letters, digits, '-', '_' and '.', a letter or digit first", _parse_directory_name
)
MEMORY_SIZE = OptionKind('a memory size such as "512 mb"', _parse_memory_size)
