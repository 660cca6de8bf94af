"""Reads and writes records of an Avro schema in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.connectors.formats.avro.row_conversion import (
    record_converter,
    row_converter,
    row_type_of_schema,
)
from penstock.connectors.formats.avro.schema import AvroSchema, GenericRecordAvroTypeInfo
from penstock.connectors.formats.avro.validation import record_validator
from penstock.connectors.formats.bulk_writers import FunctionWriter
from penstock.connectors.formats.columnar.parquet_reader import ParquetColumnarRowInputFormat
from penstock.connectors.formats.columnar.writers import ParquetBulkWriters
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.text_lines import StreamFormat


class AvroParquetReaders:
    """Creates formats that read Parquet files as records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """Read dicts."""
        return _AvroParquetFormat(schema)


class _AvroParquetFormat(ParquetColumnarRowInputFormat, StreamFormat):
    def __init__(self, schema: AvroSchema) -> None:
        super().__init__(row_type_of_schema(schema))
        self._schema = schema

    def type_info(self) -> GenericRecordAvroTypeInfo:
        return GenericRecordAvroTypeInfo(self._schema)

    def read(self, file: InputFile, start: int, end: int) -> Iterator[list[Any]]:
        to_record = record_converter(self._schema)
        for rows in super().read(file, start, end):
            yield list(map(to_record, rows))


class AvroParquetWriters:
    """Creates writers of Parquet files from records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Write dicts, or rows."""
        return _Factory(schema)


class _Factory(BulkWriterFactory):
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._rows = ParquetBulkWriters.for_row_type(row_type_of_schema(schema))

    def create(self, file: BinaryIO) -> BulkWriter:
        rows, validate = self._rows.create(file), record_validator(self._schema)
        to_record, to_row = record_converter(self._schema), row_converter(self._schema)

        def add(element: Any) -> None:
            record = to_record(element)
            validate(record)
            rows.add_element(to_row(record))

        return FunctionWriter(add, rows.finish)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        self._rows.merge(pieces, file)
