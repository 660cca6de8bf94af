"""Reads and writes CSV files."""
# ruff: noqa: D102 - the base class documents these methods

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from penstock.common.serialization import BulkWriterFactory
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats import line_files
from penstock.connectors.formats.bulk_writers import EncodedRecords
from penstock.connectors.formats.csv.block_reader import BadLineError, CsvBlockReader
from penstock.connectors.formats.csv.cells import Cell, line_writer, row_formatter, split_cells
from penstock.connectors.formats.csv.schema import CsvSchema
from penstock.connectors.formats.format_settings import check_instance
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.reader_format import in_chunks
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.errors import TextDecodingError, UnreadableFileError
from penstock.types.coercion import coercion_for


class CsvReaderFormat(StreamFormat):
    """The rows of CSV files in UTF-8, by the order of their columns."""

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        CsvBlockReader(schema)

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Read files of a schema."""
        return CsvReaderFormat(
            check_instance(schema, CsvSchema, "a CSV format needs CsvSchema.builder()….build()")
        )

    def type_info(self) -> TypeInformation:
        return self._schema.row_type()

    def read(self, file: InputFile, start: int, end: int) -> Iterator[list[Any]]:
        blocks, path = CsvBlockReader(self._schema), str(file.path)
        whole = line_files.is_compressed(file.path) or (start == 0 and end >= file.size)
        pieces = line_files.read_blocks(file, start, end, begin=self._begin(file))
        for offset, block in self._joined(file, pieces) if whole else pieces:
            try:
                rows = blocks.rows(block, one_line_each=not whole)
            except BadLineError as error:
                line = line_files.line_number(file, offset) + error.line
                raise UnreadableFileError(path, f"line {line}", str(error)) from None
            except UnicodeDecodeError as error:
                at = offset + error.start
                raise TextDecodingError(path, at, "utf-8", error.reason) from None
            yield from in_chunks(rows)

    def _begin(self, file: InputFile) -> int:
        """Check the header, and return where the records begin."""
        count = self._schema.lines_before_data()
        if not count:
            return 0
        lines, begin = line_files.first_lines(file, count)
        if self._schema.use_header and self._schema.strict_headers and lines:
            names = split_cells(self._schema.layout, lines[0].decode("utf-8", "replace"))
            if names != self._schema.names():
                reason = f"the header should be {self._schema.names()}; got {names}"
                raise UnreadableFileError(str(file.path), "line 1", reason)
        return begin

    def _joined(
        self, file: InputFile, pieces: Iterator[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """Join blocks until none ends inside quotes."""
        layout = self._schema.layout
        quote = layout.quote.encode() if layout.quote is not None else None
        joined: list[bytes] = []
        joined_at = quotes = 0
        for offset, block in pieces:
            if not joined:
                joined_at = offset
            elif offset + len(block) - joined_at > file.settings.max_block_bytes:
                what = f"what the quotes at byte {joined_at} of file {file.path} join"
                raise file.settings.block_too_large(what)
            joined.append(block)
            quotes += block.count(quote) if quote else 0
            # If quotes may be escaped, it is not known which of them count: the file is one block.
            if quotes % 2 == 0 and (layout.escape is None or not quote):
                yield joined_at, b"".join(joined)
                joined, quotes = [], 0
        if joined:
            yield joined_at, b"".join(joined)


class CsvBulkWriters:
    """Creates writers of CSV files."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Write rows of a schema; every file gets a header if the schema has one."""
        check_instance(schema, CsvSchema, "CSV files need CsvSchema.builder()….build()")
        _row_encoder(schema)
        names = [(name, True) for name in schema.names()]
        header = line_writer(schema.layout)(names).encode("utf-8") if schema.use_header else b""
        return EncodedRecords(partial(_row_encoder, schema), header)


def _row_encoder(schema: CsvSchema) -> Callable[[Any], bytes]:
    write_line, coerce = line_writer(schema.layout), coercion_for(schema.row_type())
    cells_of = row_formatter(schema.columns_with_layouts(), schema.layout.null_literal or "")
    quoted_empty: Cell = ((schema.layout.quote or "") * 2, False)

    def encode(row: Any) -> bytes:
        cells = cells_of(coerce(row))
        # Quoted, because an empty line would be no row.
        if len(cells) == 1 and cells[0][0] == "":
            cells = [quoted_empty]
        return write_line(cells).encode("utf-8")

    return encode
