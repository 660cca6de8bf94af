"""Parses and formats durations of configuration values."""

from __future__ import annotations

import re
from datetime import timedelta

_NANOSECONDS = "ns nano nanos nanosecond nanoseconds"
_LABELS = {
    "d day days": timedelta(days=1),
    "h hour hours": timedelta(hours=1),
    "m min minute minutes": timedelta(minutes=1),
    "s sec secs second seconds": timedelta(seconds=1),
    "ms milli millis millisecond milliseconds": timedelta(milliseconds=1),
    "us µs micro micros microsecond microseconds": timedelta(microseconds=1),
}
_UNITS = {label: unit for labels, unit in _LABELS.items() for label in labels.split()}
_NANOS = frozenset(_NANOSECONDS.split())
_FORMAT = re.compile(r"\s*(\d+)\s*([a-zA-Zµ]*)\s*")
_FORMATTED = [("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1))]
_FORMATTED += [("s", timedelta(seconds=1)), ("ms", timedelta(milliseconds=1))]


def parse_duration(text: str) -> timedelta:
    """Parse ``"500 ms"``, ``"1 s"``, ``"10 min"``; a number without unit is milliseconds.

    Raises:
        ValueError: the text is not a whole number followed by a unit Flink knows.
    """
    match = _FORMAT.fullmatch(text)
    if match is None:
        message = f"not a duration: {text!r}"
        raise ValueError(message)
    count, label = int(match[1]), match[2].lower() or "ms"
    if label in _NANOS:
        return timedelta(microseconds=count // 1000)
    if label not in _UNITS:
        message = f"unknown unit of time {match[2]!r} in {text!r}"
        raise ValueError(message)
    return count * _UNITS[label]


def format_duration(duration: timedelta) -> str:
    """Format a duration in the largest unit without a fraction."""
    for label, unit in _FORMATTED:
        if duration and duration % unit == timedelta():
            return f"{duration // unit} {label}"
    return f"{duration // timedelta(microseconds=1)} us" if duration else "0 ms"
