"""Parses and formats memory sizes."""

from __future__ import annotations

import re

_LABELS = {
    "b bytes": 0,
    "k kb kibibytes": 10,
    "m mb mebibytes": 20,
    "g gb gibibytes": 30,
    "t tb tebibytes": 40,
}
_SHIFTS = {label: shift for labels, shift in _LABELS.items() for label in labels.split()}
_UNITS = ("KB", "MB", "GB", "TB")
_FORMAT = re.compile(r"\s*(\d+)\s*([a-zA-Z]*)\s*")


def parse_memory_size(text: str) -> int:
    """Parse ``"512 mb"``, ``"1g"``, by powers of 1024; a number without unit is bytes.

    Raises:
        ValueError: the text is not a whole number followed by a unit Flink knows.
    """
    match = _FORMAT.fullmatch(text)
    if match is None:
        message = f"not a memory size: {text!r}"
        raise ValueError(message)
    count, label = int(match[1]), match[2].lower() or "b"
    if label not in _SHIFTS:
        message = f"unknown unit of memory {match[2]!r} in {text!r}"
        raise ValueError(message)
    return count << _SHIFTS[label]


def format_memory_size(number: int) -> str:
    """Format a size in the largest unit without a fraction."""
    for label, shift in (("tb", 40), ("gb", 30), ("mb", 20), ("kb", 10)):
        if number and number % (1 << shift) == 0:
            return f"{number >> shift} {label}"
    return f"{number} bytes"


def size(number: int) -> str:
    """Format a number of bytes with three digits, by powers of 1024."""
    if number < 1024:
        return f"{number} B"
    value = float(number)
    for unit in _UNITS:
        value /= 1024
        if value < 1023.5 or unit == _UNITS[-1]:
            break
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
