"""Files of JSON, an object per line, read and written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from penstock.connectors.line_blocks import normalised
from penstock.connectors.line_files import is_compressed, line_number, read_blocks
from penstock.connectors.source import CHUNK_RECORDS
from penstock.connectors.text_lines import StreamFormat
from penstock.errors import ConnectorError, UnreadableFileError

__all__ = ["JsonBulkWriters", "JsonReaderFormat"]

_COPIED_AT_ONCE = 1 << 20


class JsonReaderFormat(StreamFormat):
    """Rows out of files with a JSON object in each line; empty lines are left out."""

    def __init__(self, schema: JsonRowDeserializationSchema) -> None:
        self._schema = schema

    @staticmethod
    def for_schema(schema: JsonRowDeserializationSchema) -> JsonReaderFormat:
        """Read lines as this schema says."""
        if not isinstance(schema, JsonRowDeserializationSchema):
            message = f"a JSON format needs a JsonRowDeserializationSchema; got {schema!r}"
            raise TypeError(message)
        return JsonReaderFormat(schema)

    def type_info(self) -> TypeInformation:
        """Return the row type."""
        return self._schema.get_produced_type()

    def splittable(self, path: Path) -> bool:
        """Tell that only compressed files cannot be cut."""
        return not is_compressed(path)

    def read(self, path: Path, start: int, end: int) -> Iterator[list[Any]]:
        """Give the rows in lists."""
        for offset, block in read_blocks(path, start, end):
            rows = self._rows(path, offset, normalised(block))
            for first in range(0, len(rows), CHUNK_RECORDS):
                yield rows[first : first + CHUNK_RECORDS]

    def _rows(self, path: Path, offset: int, block: bytes) -> list[Any]:
        lines = block.split(b"\n")
        lines.pop()
        decode = self._schema.deserialize
        try:
            rows = [decode(line) for line in lines if line and not line.isspace()]
        except ConnectorError:
            self._fail(path, offset, lines)
            raise
        if self._schema.ignores_parse_errors:
            return [row for row in rows if row is not None]
        return rows

    def _fail(self, path: Path, offset: int, lines: Sequence[bytes]) -> None:
        for number, line in enumerate(lines):
            try:
                if line and not line.isspace():
                    self._schema.deserialize(line)
            except ConnectorError as error:
                where = f"line {line_number(path, offset) + number}"
                raise UnreadableFileError(str(path), where, str(error)) from None


class JsonBulkWriters:
    """Makes writers of files with a JSON object in each line."""

    @staticmethod
    def for_schema(schema: JsonRowSerializationSchema) -> BulkWriterFactory:
        """Write rows as this schema says."""
        if not isinstance(schema, JsonRowSerializationSchema):
            message = f"JSON files need a JsonRowSerializationSchema; got {schema!r}"
            raise TypeError(message)
        return _Factory(schema)


class _Factory(BulkWriterFactory):
    def __init__(self, schema: JsonRowSerializationSchema) -> None:
        self._schema = schema

    def create(self, file: BinaryIO) -> BulkWriter:
        return _Writer(file, self._schema)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        for piece in pieces:
            with piece.open("rb") as staged:
                shutil.copyfileobj(staged, file, _COPIED_AT_ONCE)


class _Writer(BulkWriter):
    def __init__(self, file: BinaryIO, schema: JsonRowSerializationSchema) -> None:
        self._write, self._serialize = file.write, schema.serialize

    def add_element(self, element: Any) -> None:
        self._write(self._serialize(element) + b"\n")

    def finish(self) -> None:
        pass
