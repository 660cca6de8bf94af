"""Records of an Avro schema in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.connectors.avro_fit import checker
from penstock.connectors.avro_rows import record_maker, row_maker, row_type_of_schema
from penstock.connectors.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
from penstock.connectors.parquet import ParquetBulkWriters
from penstock.connectors.parquet_files import ParquetColumnarRowInputFormat
from penstock.connectors.text_lines import StreamFormat

__all__ = ["AvroParquetReaders", "AvroParquetWriters"]


class AvroParquetReaders:
    """Makes formats that read Parquet files as records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """Read dicts."""
        return _AvroParquetFormat(schema)


class _AvroParquetFormat(StreamFormat):
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._rows = ParquetColumnarRowInputFormat(row_type_of_schema(schema))

    def type_info(self) -> GenericRecordAvroTypeInfo:
        return GenericRecordAvroTypeInfo(self._schema)

    def splittable(self, path: Path) -> bool:
        return self._rows.splittable(path)

    def block_starts(self, path: Path) -> Sequence[int]:
        return self._rows.block_starts(path)

    def bytes_per_record(self, path: Path) -> float:
        return self._rows.bytes_per_record(path)

    def read(self, path: Path, start: int, end: int) -> Iterator[list[Any]]:
        to_record = record_maker(self._schema)
        for rows in self._rows.read(path, start, end):
            yield list(map(to_record, rows))


class AvroParquetWriters:
    """Makes writers of Parquet files out of records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Write dicts, or rows."""
        return _Factory(schema)


class _Factory(BulkWriterFactory):
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._rows = ParquetBulkWriters.for_row_type(row_type_of_schema(schema))

    def create(self, file: BinaryIO) -> BulkWriter:
        return _Writer(self._rows.create(file), self._schema)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        self._rows.merge(pieces, file)


class _Writer(BulkWriter):
    def __init__(self, rows: BulkWriter, schema: AvroSchema) -> None:
        self._rows = rows
        self._check = checker(schema)
        self._to_record = record_maker(schema)
        self._to_row = row_maker(schema)

    def add_element(self, element: Any) -> None:
        record = self._to_record(element)
        self._check(record)
        self._rows.add_element(self._to_row(record))

    def finish(self) -> None:
        self._rows.finish()
