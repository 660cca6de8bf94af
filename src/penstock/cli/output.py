"""Formats what commands print: tables, JSON, times, durations and sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import click
import msgspec

from penstock.common.text.memory_sizes import size as size
from penstock.common.text.tolerant_json import encode_json, representable

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_GAP = "  "
_NAMES_SHOWN = 5


def echo(facts: object, as_json: bool, text: Callable[[], str]) -> None:
    """Print facts as JSON or as text."""
    click.echo(
        msgspec.json.format(encode_json(facts)).decode() if as_json else representable(text())
    )


def warn_unreadable(where: str, names: Collection[str]) -> None:
    """Tell the user which damaged files and lines are not shown."""
    if names:
        shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        message = f"Warning: not shown, because it cannot be read: {shown}{more} in {where}"
        click.echo(representable(message), err=True)


def table(rows: Sequence[Mapping[str, str]], numbers: Collection[str], indent: str = "") -> str:
    """Return rows, each from head to cell, as aligned columns; `numbers` are right-aligned."""
    heads = list(rows[0])
    lines = [dict(zip(heads, heads, strict=True)), *rows]
    widths = {head: max(len(line[head]) for line in lines) for head in heads}
    shown = (
        _GAP.join(
            line[head].rjust(widths[head]) if head in numbers else line[head].ljust(widths[head])
            for head in heads
        )
        for line in lines
    )
    return "\n".join(f"{indent}{line}".rstrip() for line in shown)


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


def clock(then: float) -> str:
    """Return a point in time, in the local time zone."""
    try:
        return datetime.fromtimestamp(then).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{then:g} s"  # from a damaged file
