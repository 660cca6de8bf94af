"""Files of CSV, read and written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.row import Row
from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.csv_blocks import BadLineError, CsvBlocks
from penstock.connectors.csv_cells import cell_speller, is_text
from penstock.connectors.csv_lines import cells_of, line_writer
from penstock.connectors.csv_schema import CsvSchema
from penstock.connectors.line_files import (
    first_lines,
    is_compressed,
    line_number,
    read_blocks,
)
from penstock.connectors.source import CHUNK_RECORDS
from penstock.connectors.text_lines import StreamFormat
from penstock.errors import TextDecodingError, UnreadableFileError
from penstock.state.fitting import fit_for

__all__ = ["CsvBulkWriters", "CsvReaderFormat"]

_COPIED_AT_ONCE = 1 << 20


class CsvReaderFormat(StreamFormat):
    """The rows of CSV files in UTF-8, by the order of their columns."""

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        CsvBlocks(schema)

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Read files that look like this."""
        if not isinstance(schema, CsvSchema):
            message = f"a CSV format needs CsvSchema.builder()….build(); got {schema!r}"
            raise TypeError(message)
        return CsvReaderFormat(schema)

    def type_info(self) -> TypeInformation:
        """Return the row type."""
        return self._schema.row_type()

    def splittable(self, path: Path) -> bool:
        """Tell that only compressed files cannot be cut."""
        return not is_compressed(path)

    def read(self, path: Path, start: int, end: int) -> Iterator[list[Any]]:
        """Give the rows in lists."""
        blocks = CsvBlocks(self._schema)
        whole = is_compressed(path) or (start == 0 and end >= path.stat().st_size)
        begin = self._begin(path)
        pieces = read_blocks(path, start, end, begin=begin)
        for offset, block in self._joined(pieces) if whole else pieces:
            rows = _rows(path, offset, block, blocks, one_line_each=not whole)
            for first in range(0, len(rows), CHUNK_RECORDS):
                yield rows[first : first + CHUNK_RECORDS]

    def _begin(self, path: Path) -> int:
        """Check the header, and find where the records begin."""
        count = self._schema.lines_before_data()
        if not count:
            return 0
        lines, begin = first_lines(path, count)
        if self._schema.use_header and self._schema.strict_headers and lines:
            names = cells_of(self._schema.layout, lines[0].decode("utf-8", "replace"))
            if names != self._schema.names():
                reason = f"the header should be {self._schema.names()}; got {names}"
                raise UnreadableFileError(str(path), "line 1", reason)
        return begin

    def _joined(self, pieces: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Put blocks together until none ends inside of quotes."""
        layout = self._schema.layout
        quote = layout.quote.encode() if layout.quote is not None else None
        held: list[bytes] = []
        held_at = quotes = 0
        for offset, block in pieces:
            if not held:
                held_at = offset
            held.append(block)
            quotes += block.count(quote) if quote else 0
            # Which quotes count is not known where some may be escaped: then all is one block.
            if quotes % 2 == 0 and (layout.escape is None or not quote):
                yield held_at, b"".join(held)
                held, quotes = [], 0
        if held:
            yield held_at, b"".join(held)


def _rows(
    path: Path, offset: int, block: bytes, blocks: CsvBlocks, *, one_line_each: bool
) -> list[Row]:
    try:
        return blocks.rows(block, one_line_each=one_line_each)
    except BadLineError as error:
        line = line_number(path, offset) + error.line
        raise UnreadableFileError(str(path), f"line {line}", str(error)) from None
    except UnicodeDecodeError as error:
        at = offset + error.start
        raise TextDecodingError(str(path), at, "utf-8", error.reason) from None


class CsvBulkWriters:
    """Makes writers of CSV files."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Write rows as this schema says; with a header, if it has one, in every file."""
        if not isinstance(schema, CsvSchema):
            message = f"CSV files need CsvSchema.builder()….build(); got {schema!r}"
            raise TypeError(message)
        _speller_of_rows(schema)
        return _Factory(schema)


class _Factory(BulkWriterFactory):
    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema

    def create(self, file: BinaryIO) -> BulkWriter:
        file.write(_header(self._schema))
        return _Writer(file, self._schema)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        header = _header(self._schema)
        file.write(header)
        for piece in pieces:
            with piece.open("rb") as staged:
                staged.seek(len(header))
                shutil.copyfileobj(staged, file, _COPIED_AT_ONCE)


class _Writer(BulkWriter):
    def __init__(self, file: BinaryIO, schema: CsvSchema) -> None:
        self._write = file.write
        self._fit = fit_for(schema.row_type())
        self._spell = _speller_of_rows(schema)

    def add_element(self, element: Any) -> None:
        self._write(self._spell(self._fit(element)).encode("utf-8"))

    def finish(self) -> None:
        pass


def _header(schema: CsvSchema) -> bytes:
    if not schema.use_header:
        return b""
    return line_writer(schema.layout)([(name, True) for name in schema.names()]).encode("utf-8")


def _speller_of_rows(schema: CsvSchema) -> Any:
    write_line, null = line_writer(schema.layout), schema.layout.null_literal or ""
    spellers = [
        (cell_speller(column.type_info, schema.layout_of(column)), is_text(column.type_info))
        for column in schema.columns
    ]

    alone = len(spellers) == 1
    empty = (schema.layout.quote or "") * 2

    def spell(row: Any) -> str:
        cells = [
            (null, False) if value is None else (spell_cell(value), textual)
            for value, (spell_cell, textual) in zip(row, spellers, strict=True)
        ]
        # An empty line would be no row.
        return write_line([(empty, False)] if alone and cells[0][0] == "" else cells)

    return spell
