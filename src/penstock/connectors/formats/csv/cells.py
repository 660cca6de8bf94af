"""Lines and cells of CSV: splits, parses, formats and joins them, as Jackson does."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from penstock.common.row import Row
from penstock.common.text.java_text import java_string
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    ObjectArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TypeInformation,
)
from penstock.connectors.formats.text_values import decode_base64, reject, text_parser
from penstock.errors import InvalidJobError
from penstock.types.traversal import is_bytes

# Jackson searches only short texts for special characters, and quotes longer ones at once.
_MAX_SEARCHED = 24

# Unlike str.splitlines(), which also splits at characters that may be part of a cell.
_LINE_END = re.compile(r"\r\n|\n|\r")

Cell: TypeAlias = tuple[str, bool]
"""The text of a cell, and whether it may need quotes."""
CellParser: TypeAlias = Callable[[str], Any]
_CellFormatter: TypeAlias = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """What separates and encloses the cells of a line; None for what is not used."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    array_delimiter: str = ";"
    null_literal: str | None = None
    line_delimiter: str = "\n"
    comments: bool = False


class LayoutBuilder:
    """Base of builders that set a layout."""

    def __init__(self) -> None:
        self._layout = CsvLayout()

    def _with(self, **changes: Any) -> Self:
        self._layout = replace(self._layout, **changes)
        return self


def split_cells(layout: CsvLayout, text: str) -> list[str]:
    """Split the first line of a text into cells; an empty line or comment has none."""
    while layout.comments and text.startswith("#"):
        text = "".join(_LINE_END.split(text, 1)[1:])
    special = (layout.quote, layout.escape)
    if any(mark is not None and mark in text for mark in special):
        reader = cell_reader(layout, io.StringIO(text, newline=""), len(text))
        try:
            return next(reader, [])
        except csv.Error as error:
            raise ValueError(str(error)) from None
    line = _LINE_END.split(text, 1)[0]
    return line.split(layout.delimiter) if line else []


def cell_reader(layout: CsvLayout, lines: Iterable[str], max_cell: int) -> Iterator[list[str]]:
    """Return a reader of the cells of lines, none of which is longer than ``max_cell``."""
    # The limit holds for the whole process. Jackson has none.
    if max_cell > csv.field_size_limit():
        csv.field_size_limit(max_cell)
    return csv.reader(
        lines,
        delimiter=layout.delimiter,
        quotechar=layout.quote,
        quoting=csv.QUOTE_NONE if layout.quote is None else csv.QUOTE_MINIMAL,
        escapechar=layout.escape,
        strict=True,
    )


def line_writer(layout: CsvLayout) -> Callable[[Sequence[Cell]], str]:
    """Return the function that makes a line of cells."""
    quote = layout.quote
    if quote is None:
        return lambda cells: (
            layout.delimiter.join(cell for cell, _ in cells) + layout.line_delimiter
        )
    lowest_safe = max(layout.delimiter, quote)

    def quoted(cell: str, is_text: bool) -> str:
        if not is_text or (
            len(cell) <= _MAX_SEARCHED
            and all(c > lowest_safe for c in cell)
            and (layout.escape is None or layout.escape not in cell)
        ):
            return cell
        if layout.escape is not None:
            cell = cell.replace(layout.escape, layout.escape * 2)
        return quote + cell.replace(quote, quote * 2) + quote

    def write(cells: Sequence[Cell]) -> str:
        line = layout.delimiter.join(quoted(cell, is_text) for cell, is_text in cells)
        return line + layout.line_delimiter

    return write


def row_parser(
    types: Iterable[TypeInformation], layout: CsvLayout, ignore_errors: bool
) -> list[CellParser]:
    """Return the parsers of a row's cells."""
    return [cell_parser(type_info, layout, ignore_errors) for type_info in types]


def cell_parser(type_info: TypeInformation, layout: CsvLayout, ignore_errors: bool) -> CellParser:
    """Return the parser of a cell; it raises ``ValueError`` unless errors are ignored."""
    parse = _parser(type_info, layout, ignore_errors)
    null = layout.null_literal

    def parse_or_none(cell: str) -> Any:
        if cell == null:
            return None
        try:
            return parse(cell)
        except ValueError:
            if ignore_errors:
                return None
            raise

    return parse_or_none


def _parser(type_info: TypeInformation, layout: CsvLayout, ignore_errors: bool) -> CellParser:
    if (parse := text_parser(type_info)) is not None:
        return parse
    if is_bytes(type_info):
        return decode_base64
    if (element := _element(type_info)) is not None:
        each = cell_parser(element, layout, ignore_errors)
        return lambda cell: [each(part) for part in _parts(cell, layout)]
    if isinstance(type_info, RowTypeInfo):
        parsers = row_parser(type_info.field_types, layout, ignore_errors)
        names = list(type_info.field_names)
        return lambda cell: _nested_row(parsers, names, _parts(cell, layout))
    raise _unsupported(type_info)


def _nested_row(parsers: list[CellParser], names: list[str], parts: list[str]) -> Row:
    if len(parts) != len(parsers):
        reject(f"Row length mismatch. {len(parsers)} fields expected but was {len(parts)}.")
    row = Row(*(parse(part) for parse, part in zip(parsers, parts, strict=True)))
    row.set_field_names(names)
    return row


def _parts(cell: str, layout: CsvLayout) -> list[str]:
    if not layout.array_delimiter:
        return [cell]
    return cell.split(layout.array_delimiter) if cell else []


def _element(type_info: TypeInformation) -> TypeInformation | None:
    match type_info:
        case ListTypeInfo(element) | ObjectArrayTypeInfo(element) | BasicArrayTypeInfo(element):
            return element
    return None


def row_formatter(
    columns: Iterable[tuple[TypeInformation, CsvLayout]], null: str
) -> Callable[[Any], list[Cell]]:
    """Return the function that makes the cells of a row; ``null`` is the text of None."""
    formatters = [
        (_formatter(type_info, layout), _is_text(type_info)) for type_info, layout in columns
    ]
    return lambda row: [
        (null, False) if value is None else (format_cell(value), is_text)
        for value, (format_cell, is_text) in zip(row, formatters, strict=True)
    ]


def _formatter(type_info: TypeInformation, layout: CsvLayout) -> _CellFormatter:
    if isinstance(type_info, BasicTypeInfo | SqlTimeTypeInfo):
        if text_parser(type_info) is not None:
            return lambda value: java_string(value, type_info)
    elif is_bytes(type_info):
        return lambda value: base64.b64encode(value).decode()
    elif (element := _element(type_info)) is not None:
        each = _formatter(element, layout)
        return lambda values: _joined([(each, value) for value in values], layout)
    elif isinstance(type_info, RowTypeInfo):
        formatters = [_formatter(kind, layout) for kind in type_info.field_types]
        return lambda row: _joined(list(zip(formatters, row, strict=True)), layout)
    raise _unsupported(type_info)


def _joined(parts: list[tuple[_CellFormatter, Any]], layout: CsvLayout) -> str:
    null = layout.null_literal or ""
    return layout.array_delimiter.join(null if v is None else text_of(v) for text_of, v in parts)


def _is_text(type_info: TypeInformation) -> bool:
    """Whether cells of a type may need quotes."""
    if isinstance(type_info, BasicTypeInfo):
        return type_info.kind in (BasicType.STRING, BasicType.CHAR)
    return True


def _unsupported(type_info: TypeInformation) -> InvalidJobError:
    return InvalidJobError(f"Unsupported type information {type_info!r} in a CSV row")
