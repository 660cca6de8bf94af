"""Lines of CSV: their cells, read and written as Jackson does."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["CsvLayout", "cells_of", "line_writer"]

# Jackson looks through short texts only, and quotes longer ones at once.
_LONGEST_LOOK = 24

# Not what str.splitlines() takes for one: those are letters of a cell.
_LINE_END = re.compile(r"\r\n|\n|\r")

LineWriter: TypeAlias = Callable[[Sequence[tuple[str, bool]]], str]


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """What separates and encloses the cells of a line; None for what is not in use."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    array_delimiter: str = ";"
    null_literal: str | None = None
    line_delimiter: str = "\n"
    comments: bool = False


def cells_of(layout: CsvLayout, text: str) -> list[str]:
    """Cut the first line of a text into cells; none at all for an empty line or a comment."""
    while layout.comments and text.startswith("#"):
        text = "".join(_LINE_END.split(text, 1)[1:])
    special = (layout.quote, layout.escape)
    if any(mark is not None and mark in text for mark in special):
        return _quoted_cells(layout, text)
    line = _LINE_END.split(text, 1)[0]
    return line.split(layout.delimiter) if line else []


def _quoted_cells(layout: CsvLayout, text: str) -> list[str]:
    # A limit of the whole process, of which Jackson has none.
    if len(text) > csv.field_size_limit():
        csv.field_size_limit(len(text))
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=layout.delimiter,
        quotechar=layout.quote,
        quoting=csv.QUOTE_MINIMAL if layout.quote is not None else csv.QUOTE_NONE,
        escapechar=layout.escape,
        strict=True,
    )
    try:
        return next(reader, [])
    except csv.Error as error:
        raise ValueError(str(error)) from None


def line_writer(layout: CsvLayout) -> LineWriter:
    """Make a writer of cells, each given with whether it is text, which may need quotes."""
    quote = layout.quote
    if quote is None:
        return lambda cells: (
            layout.delimiter.join(cell for cell, _ in cells) + layout.line_delimiter
        )
    lowest_safe = max(layout.delimiter, quote)

    def written(cell: str, is_text: bool) -> str:
        if not is_text or (
            len(cell) <= _LONGEST_LOOK
            and all(c > lowest_safe for c in cell)
            and (layout.escape is None or layout.escape not in cell)
        ):
            return cell
        if layout.escape is not None:
            cell = cell.replace(layout.escape, layout.escape * 2)
        return quote + cell.replace(quote, quote * 2) + quote

    def write(cells: Sequence[tuple[str, bool]]) -> str:
        line = layout.delimiter.join(written(cell, is_text) for cell, is_text in cells)
        return line + layout.line_delimiter

    return write
