"""Reads and writes files with a JSON object in each line."""
# ruff: noqa: D102 - the base class documents these methods

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.common.serialization import BulkWriterFactory
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.bulk_writers import EncodedRecords
from penstock.connectors.formats.format_settings import check_instance
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.json.row_schema import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from penstock.connectors.formats.line_files import line_number, normalise, read_blocks
from penstock.connectors.formats.reader_format import in_chunks
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.errors import ConnectorError, UnreadableFileError


class JsonReaderFormat(StreamFormat):
    """The rows of files with a JSON object in each line; empty lines are skipped."""

    def __init__(self, schema: JsonRowDeserializationSchema) -> None:
        self._schema = schema

    @staticmethod
    def for_schema(schema: JsonRowDeserializationSchema) -> JsonReaderFormat:
        """Read lines with a schema."""
        needs = "a JSON format needs a JsonRowDeserializationSchema"
        return JsonReaderFormat(check_instance(schema, JsonRowDeserializationSchema, needs))

    def type_info(self) -> TypeInformation:
        return self._schema.get_produced_type()

    def read(self, file: InputFile, start: int, end: int) -> Iterator[list[Any]]:
        for offset, block in read_blocks(file, start, end):
            yield from in_chunks(self._rows(file, offset, normalise(block)))

    def _rows(self, file: InputFile, offset: int, block: bytes) -> list[Any]:
        lines = block.split(b"\n")
        lines.pop()
        decode = self._schema.deserialize
        try:
            rows = [decode(line) for line in lines if line and not line.isspace()]
        except ConnectorError:
            self._raise_with_line(file, offset, lines)
            raise
        if self._schema.ignores_parse_errors:
            return [row for row in rows if row is not None]
        return rows

    def _raise_with_line(self, file: InputFile, offset: int, lines: Sequence[bytes]) -> None:
        for number, line in enumerate(lines):
            try:
                if line and not line.isspace():
                    self._schema.deserialize(line)
            except ConnectorError as error:
                where = f"line {line_number(file, offset) + number}"
                raise UnreadableFileError(str(file.path), where, str(error)) from None


class JsonBulkWriters:
    """Creates writers of files with a JSON object in each line."""

    @staticmethod
    def for_schema(schema: JsonRowSerializationSchema) -> BulkWriterFactory:
        """Write rows with a schema."""
        check_instance(
            schema, JsonRowSerializationSchema, "JSON files need a JsonRowSerializationSchema"
        )
        serialize = schema.serialize
        return EncodedRecords(lambda: lambda element: serialize(element) + b"\n")
