"""Blocks of CSV lines as rows: at once with Arrow where its reading is Java's, else one by one."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv

from penstock.common.row import Row, rows_of
from penstock.common.typeinfo import BasicType, BasicTypeInfo, TypeInformation
from penstock.connectors.csv_cells import cell_parser
from penstock.connectors.csv_lines import CsvLayout
from penstock.connectors.csv_schema import CsvSchema
from penstock.connectors.line_blocks import normalised

__all__ = ["BadLineError", "CsvBlocks"]

_ARROW = {
    BasicType.STRING: pa.string(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
}


class BadLineError(ValueError):
    """A line, counted from the first of its block, that is no such row."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class CsvBlocks:
    """Makes rows of blocks of whole lines."""

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        self._names = schema.names()
        self._parsers = [
            cell_parser(column.type_info, schema.layout_of(column), False)
            for column in schema.columns
        ]
        self._options = _arrow_options(schema)
        self._well_formed = _well_formed(schema.layout)

    def rows(self, block: bytes, *, one_line_each: bool) -> list[Row]:
        """Return the rows of a block.

        With ``one_line_each`` a cell that goes over several lines is refused: what begins in the
        middle of a file cannot tell whether it begins inside of one.

        Raises:
            BadLineError: for the first line at fault.
            UnicodeDecodeError: where it is no text.
        """
        columns = self._columns(block, one_line_each)
        if columns is not None:
            return rows_of(self._names, columns)
        return list(self._one_by_one(block.decode("utf-8"), one_line_each))

    def _columns(self, block: bytes, one_line_each: bool) -> list[list[Any]] | None:
        """Read with Arrow; None if that fails, or might not be what Java reads."""
        if self._options is None or b"0x" in block or b"0X" in block:
            return None
        lines = None
        quote = (self._schema.layout.quote or "").encode()
        if quote and quote in block:
            # Arrow bears what stands between a closing quote and the next cell.
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
    layout, types = schema.layout, [_arrow(column.type_info) for column in schema.columns]
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
    """Make a pattern of blocks in which quotes enclose whole cells, and nothing is left open."""
    quote, delimiter = (re.escape(mark.encode()) for mark in (layout.quote or "", layout.delimiter))
    ends = rb"[" + delimiter + rb"\r\n]"
    quoted = quote + rb"[^" + quote + rb"]*+(?:" + quote * 2 + rb"[^" + quote + rb"]*+)*+" + quote
    bare = rb"[^" + quote + delimiter + rb"\r\n][^" + delimiter + rb"\r\n]*+"
    cell = rb"(?:" + quoted + rb"|" + bare + rb")?+"
    return re.compile(rb"(?:" + cell + ends + rb")*+" + cell) if layout.quote else re.compile(b"")


def _arrow(type_info: TypeInformation) -> pa.DataType | None:
    return _ARROW.get(type_info.kind) if isinstance(type_info, BasicTypeInfo) else None


def _count_lines(block: bytes) -> int | None:
    lines = normalised(block)
    if lines.startswith(b"\n") or b"\n\n" in lines:
        return None
    return lines.count(b"\n")


def _records(layout: CsvLayout, text: str, one_line_each: bool) -> Iterator[tuple[int, list[str]]]:
    """Cut a text into the cells of its records, each with the line it begins in."""
    if len(text) > csv.field_size_limit():
        # A limit of the whole process, of which Jackson has none.
        csv.field_size_limit(len(text))
    begins, taken = 0, 0

    def lines() -> Iterator[str]:
        nonlocal begins, taken
        for number, line in enumerate(io.StringIO(text, newline="")):
            if begins == taken and (layout.comments and line.startswith("#")):
                begins = taken = number + 1
                continue
            taken = number + 1
            yield line

    reader = csv.reader(
        lines(),
        delimiter=layout.delimiter,
        quotechar=layout.quote,
        quoting=csv.QUOTE_NONE if layout.quote is None else csv.QUOTE_MINIMAL,
        escapechar=layout.escape,
        strict=True,
    )
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise BadLineError(begins, str(error)) from None
        if cells is None:
            return
        if one_line_each and taken - begins > 1:
            message = (
                "a cell goes on in the next line, which only a file read as a whole may have: "
                "set_file_enumerator("
                "FileEnumeratorProvider.default_non_splittable_file_enumerator())"
            )
            raise BadLineError(begins, message)
        if cells:
            yield begins, cells
        begins = taken
