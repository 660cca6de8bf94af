"""Formats what commands print: tables, JSON, times, durations and sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import click
import msgspec

from penstock.common.text.elapsed import ago as ago
from penstock.common.text.elapsed import duration as duration
from penstock.common.text.memory_sizes import size as size
from penstock.common.text.tolerant_json import encode_json, representable

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


def clock(then: float) -> str:
    """Return a point in time, in the local time zone."""
    try:
        return datetime.fromtimestamp(then).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{then:g} s"  # from a damaged file
