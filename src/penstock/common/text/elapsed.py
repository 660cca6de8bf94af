"""Writes durations and distances in time for people."""

from __future__ import annotations

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def ago(then: float, now: float) -> str:
    """Return how long ago something was, in its largest unit."""
    passed = max(0, int(now - then))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if passed >= unit:
            return f"{passed // unit} {name} ago"
    return f"{passed} s ago"
