"""Rounds an interval to a number that people like, without leaving its bounds."""

from __future__ import annotations

import math

_STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


def round_interval(seconds: float, lower: float, upper: float) -> float:
    """Return the nearest round interval within the bounds, or in whole milliseconds if none is.

    Below a minute it is one of few multiples of a power of ten, above of minutes or hours.
    """
    near = [c for c in _candidates(seconds) if lower <= c <= upper]
    if near:
        return min(near, key=lambda c: (abs(math.log(c / seconds)), c))
    down, up = math.floor(seconds * 1000) / 1000, math.ceil(seconds * 1000) / 1000
    return next((c for c in (down, up) if lower <= c <= upper and c > 0), seconds)


def _candidates(seconds: float) -> list[float]:
    unit = _HOUR if seconds >= _HOUR else _MINUTE if seconds >= _MINUTE else 1.0
    power = 10.0 ** math.floor(math.log10(seconds / unit))
    rounded = [round(step * power * unit, 6) for step in _STEPS]
    # Just below a minute, an hour or a day, that itself is the next one.
    return [c for c in (*rounded, _MINUTE, _HOUR, _DAY) if c > 0 and not _is_odd(c)]


def _is_odd(seconds: float) -> bool:
    """Whether it is a fraction of a second above ten of them, as 1.1 minutes would be."""
    return seconds > 10 and seconds != round(seconds)


def format_interval(seconds: float) -> str:
    """Return an interval as Flink's options take it, in its largest whole unit."""
    millis = round(seconds * 1000)
    for unit, name in ((3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if millis and millis % unit == 0:
            return f"{millis // unit} {name}"
    return f"{millis} ms"
