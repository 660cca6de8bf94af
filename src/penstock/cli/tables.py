"""Aligned columns of plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["table"]

_GAP = "  "


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Collection[str] = (),
    indent: str = "",
) -> str:
    """Return rows under their heads; the columns in `numbers` are aligned to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    right = [head in numbers for head in heads]
    shown = (
        _GAP.join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, right, strict=True)
        )
        for line in lines
    )
    return "\n".join(f"{indent}{line}".rstrip() for line in shown)
