"""Reads blocks of CSV lines: with Arrow where it reads them as Java does, else line by line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv

from penstock.common.row import Row, rows_of
from penstock.common.typeinfo import BasicTypeInfo
from penstock.connectors.formats.csv.cells import CsvLayout, cell_parser, cell_reader
from penstock.connectors.formats.csv.schema import CsvSchema
from penstock.connectors.formats.line_files import normalise
from penstock.types.arrow import BASIC


class BadLineError(ValueError):
    """A line, counted from the first of its block, that is not a row of the schema."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class CsvBlockReader:
    """Reads the rows in blocks of whole lines."""

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        self._names = schema.names()
        self._parsers = [
            cell_parser(type_info, layout, False)
            for type_info, layout in schema.columns_with_layouts()
        ]
        self._options = _arrow_options(schema)
        self._well_formed = _well_formed(schema.layout)

    def rows(self, block: bytes, *, one_line_each: bool) -> list[Row]:
        """Return the rows of a block.

        With ``one_line_each`` a cell that spans several lines is refused: a range that begins in
        the middle of a file cannot tell whether it begins inside such a cell.

        Raises:
            BadLineError: for the first line that is not such a row.
            UnicodeDecodeError: if the block is not UTF-8.
        """
        columns = self._columns(block, one_line_each)
        if columns is not None:
            return rows_of(self._names, columns)
        return list(self._one_by_one(block.decode("utf-8"), one_line_each))

    def _columns(self, block: bytes, one_line_each: bool) -> list[list[Any]] | None:
        """Read with Arrow; None if that fails, or might differ from what Java reads."""
        if self._options is None or b"0x" in block or b"0X" in block:
            return None
        lines = None
        quote = (self._schema.layout.quote or "").encode()
        if quote and quote in block:
            # Arrow accepts text between a closing quote and the next cell.
            if not self._well_formed.fullmatch(block):
                return None
            lines = _count_lines(block) if one_line_each else None
            if one_line_each and lines is None:
                return None
        read, parse, convert = self._options
        read.block_size = len(block) + 1
        try:
            table = pyarrow.csv.read_csv(io.BytesIO(block), read, parse, convert)
        except pa.ArrowInvalid:
            return None
        if lines is not None and table.num_rows != lines:
            return None
        return [column.to_pylist() for column in table.columns]

    def _one_by_one(self, text: str, one_line_each: bool) -> Iterator[Row]:
        make, names, expected = Row(*self._names), self._names, len(self._parsers)
        for line, cells in _records(self._schema.layout, text, one_line_each):
            if len(cells) != expected:
                message = f"{expected} cells are expected, {', '.join(names)}; got {len(cells)}"
                raise BadLineError(line, message)
            values = []
            for name, parse, cell in zip(names, self._parsers, cells, strict=True):
                try:
                    values.append(parse(cell))
                except ValueError as error:
                    message = f"field {name!r}: {error}"
                    raise BadLineError(line, message) from None
            yield make(*values)


def _arrow_options(schema: CsvSchema) -> tuple[Any, Any, Any] | None:
    layout, kinds = schema.layout, [column.type_info for column in schema.columns]
    types = [BASIC.get(t.kind) if isinstance(t, BasicTypeInfo) else None for t in kinds]
    marks = layout.delimiter + (layout.quote or "")
    if None in types or layout.escape is not None or layout.comments or not marks.isascii():
        return None
    nulls = [] if layout.null_literal is None else [layout.null_literal]
    read = pyarrow.csv.ReadOptions(use_threads=False, column_names=schema.names())
    parse = pyarrow.csv.ParseOptions(
        delimiter=layout.delimiter,
        quote_char=False if layout.quote is None else layout.quote,
        newlines_in_values=True,
    )
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict(zip(schema.names(), types, strict=True)),
        null_values=nulls,
        strings_can_be_null=bool(nulls),
        quoted_strings_can_be_null=bool(nulls),
        true_values=["true", "TRUE", "True"],
        false_values=["false", "FALSE", "False"],
    )
    return read, parse, convert


def _well_formed(layout: CsvLayout) -> re.Pattern[bytes]:
    """Return a pattern of blocks in which quotes enclose whole cells and all quotes are closed."""
    quote, delimiter = (re.escape(mark.encode()) for mark in (layout.quote or "", layout.delimiter))
    ends = rb"[" + delimiter + rb"\r\n]"
    quoted = quote + rb"[^" + quote + rb"]*+(?:" + quote * 2 + rb"[^" + quote + rb"]*+)*+" + quote
    bare = rb"[^" + quote + delimiter + rb"\r\n][^" + delimiter + rb"\r\n]*+"
    cell = rb"(?:" + quoted + rb"|" + bare + rb")?+"
    return re.compile(rb"(?:" + cell + ends + rb")*+" + cell) if layout.quote else re.compile(b"")


def _count_lines(block: bytes) -> int | None:
    lines = normalise(block)
    if lines.startswith(b"\n") or b"\n\n" in lines:
        return None
    return lines.count(b"\n")


def _records(layout: CsvLayout, text: str, one_line_each: bool) -> Iterator[tuple[int, list[str]]]:
    """Split a text into the cells of its records, each with the number of its first line."""
    begins, taken = 0, 0

    def lines() -> Iterator[str]:
        nonlocal begins, taken
        for number, line in enumerate(io.StringIO(text, newline="")):
            if begins == taken and (layout.comments and line.startswith("#")):
                begins = taken = number + 1
                continue
            taken = number + 1
            yield line

    reader = cell_reader(layout, lines(), len(text))
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise BadLineError(begins, str(error)) from None
        if cells is None:
            return
        if one_line_each and taken - begins > 1:
            message = (
                "a cell continues in the next line, which only a file read as a whole may have: "
                "set_file_enumerator("
                "FileEnumeratorProvider.default_non_splittable_file_enumerator())"
            )
            raise BadLineError(begins, message)
        if cells:
            yield begins, cells
        begins = taken
