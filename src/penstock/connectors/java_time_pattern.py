"""Java's patterns of dates and times, as far as bucket names need them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["compile_pattern", "zone_of"]

_STRFTIME = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "uu": "%y",
    "MM": "%m",
    "dd": "%d",
    "DDD": "%j",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
}
_PART = re.compile(
    r"''|'(?P<quoted>(?:[^']|'')+)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])"
)
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")


def compile_pattern(pattern: str) -> Callable[[datetime], str]:
    """Make a function that formats a time; letters without a meaning here are refused."""
    spelled, position = "", 0
    while position < len(pattern):
        part = _PART.match(pattern, position)
        letters = part["letters"] if part else None
        if part is None or (letters and letters not in _STRFTIME):
            known = ", ".join(_STRFTIME)
            message = f"a bucket's time pattern knows {known} and quoted text; got {pattern!r}"
            raise ValueError(message)
        literal = (part["quoted"] or "").replace("''", "'") or part["other"] or "'"
        spelled += _STRFTIME[letters] if letters else literal.replace("%", "%%")
        position = part.end()
    return lambda moment: moment.strftime(spelled)


def zone_of(timezone_id: str | None) -> tzinfo | None:
    """Find a zone by its name (``Europe/Vienna``) or offset (``GMT-08:00``); None is local."""
    if timezone_id is None:
        return None
    if offset := _OFFSET.fullmatch(timezone_id):
        distance = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"] or 0))
        return timezone(-distance if offset["sign"] == "-" else distance)
    try:
        return ZoneInfo(timezone_id)
    except (ZoneInfoNotFoundError, ValueError):
        message = f"unknown time zone {timezone_id!r}"
        raise ValueError(message) from None
