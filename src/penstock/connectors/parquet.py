"""Parquet files for file sinks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.configuration import Configuration
from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.arrow_types import arrow_schema
from penstock.connectors.columnar_writer import ROWS_PER_GROUP, ColumnarWriter, row_type_of
from penstock.errors import InvalidJobError

__all__ = ["ParquetBulkWriters", "compression_of", "merge_parquet", "table_writer"]

_COMPRESSION = "parquet.compression"
_CODECS = {
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "lz4_raw": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
}


class ParquetBulkWriters:
    """Makes writers of Parquet files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo,
        hadoop_config: Configuration | None = None,
        utc_timestamp: bool = False,
    ) -> BulkWriterFactory:
        """Write rows of this type, with its field names as column names.

        Of a Hadoop configuration ``parquet.compression`` is known, by default SNAPPY. Timestamps
        are written as they are, in no time zone: ``utc_timestamp`` changes nothing.
        """
        return _Factory(row_type_of(row_type, "Parquet"), compression_of(hadoop_config))


def compression_of(configuration: Configuration | None) -> str:
    """Tell what a Hadoop configuration says of compression, and refuse what else it says."""
    settings = configuration.to_dict() if configuration is not None else {}
    name = settings.pop(_COMPRESSION, "SNAPPY")
    if settings:
        message = f"of a Hadoop configuration only {_COMPRESSION} is known; got {sorted(settings)}"
        raise InvalidJobError(message)
    if name.lower() not in _CODECS:
        known = ", ".join(codec.upper() for codec in _CODECS)
        message = f"{_COMPRESSION} is one of {known}; got {name!r}"
        raise InvalidJobError(message)
    return _CODECS[name.lower()]


class _Factory(BulkWriterFactory):
    def __init__(self, row_type: RowTypeInfo, compression: str) -> None:
        self._row_type = row_type
        self._compression = compression

    def create(self, file: BinaryIO) -> BulkWriter:
        writer = table_writer(file, arrow_schema(self._row_type), self._compression)
        return ColumnarWriter(self._row_type, lambda table: _write(writer, table), writer.close)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        merge_parquet(pieces, file, arrow_schema(self._row_type), self._compression)


def table_writer(file: BinaryIO, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """Begin a Parquet file."""
    return pq.ParquetWriter(file, schema, compression=compression)


def merge_parquet(
    pieces: Sequence[Path], file: BinaryIO, schema: pa.Schema, compression: str
) -> None:
    """Write the rows of files into one, in row groups that are worth it."""
    with table_writer(file, schema, compression) as writer:
        waiting: list[pa.Table] = []
        for piece in pieces:
            with pq.ParquetFile(piece) as source:
                for group in range(source.num_row_groups):
                    waiting.append(source.read_row_group(group))
                    if sum(table.num_rows for table in waiting) >= ROWS_PER_GROUP:
                        _write(writer, pa.concat_tables(waiting))
                        waiting = []
        if waiting:
            _write(writer, pa.concat_tables(waiting))


def _write(writer: pq.ParquetWriter, table: pa.Table) -> None:
    writer.write_table(table, row_group_size=max(table.num_rows, 1))
