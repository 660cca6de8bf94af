"""Writes Parquet and ORC files: rows are collected into Arrow tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from penstock.common.configuration import Configuration
from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.formats.format_settings import check_instance, codec_setting
from penstock.types.arrow import arrow_schema, plain_for
from penstock.types.coercion import coercion_for

ROWS_PER_GROUP = 1 << 16
"""Number of rows written at once, and minimum size of a merged file's row groups."""
_PARQUET_CODECS = {
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "lz4_raw": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
}
_ORC_CODECS = {
    "none": "uncompressed",
    "zlib": "zlib",
    "snappy": "snappy",
    "lz4": "lz4",
    "zstd": "zstd",
}


def check_columns(row_type: RowTypeInfo, what: str) -> RowTypeInfo:
    """Return a row type; reject other types, and fields that no column can hold."""
    needs = f"{what} files need a row type such as Types.ROW_NAMED(…)"
    arrow_schema(check_instance(row_type, RowTypeInfo, needs))
    return row_type


class _ColumnarFactory(BulkWriterFactory):
    """Base of the factories of columnar formats, which write tables."""

    def __init__(self, row_type: RowTypeInfo, compression: str) -> None:
        self._row_type = row_type
        self._compression = compression

    @abstractmethod
    def _open(self, file: BinaryIO) -> tuple[Callable[[pa.Table], None], Callable[[], None]]:
        """Begin a file, and return what writes a table and what ends the file."""

    def create(self, file: BinaryIO) -> BulkWriter:
        return _ColumnarWriter(self._row_type, *self._open(file))


class _ColumnarWriter(BulkWriter):
    """Checks each row when it is added, and writes many rows at a time."""

    def __init__(
        self,
        row_type: RowTypeInfo,
        write: Callable[[pa.Table], None],
        close: Callable[[], None],
    ) -> None:
        self._schema = arrow_schema(row_type)
        self._coerce = coercion_for(row_type)
        plain = enumerate(map(plain_for, row_type.field_types))
        self._plain = [(position, made) for position, made in plain if made is not None]
        self._write = write
        self._close = close
        self._rows: list[list[Any]] = []

    def add_element(self, element: Any) -> None:
        row = list(self._coerce(element))
        for position, plain in self._plain:
            row[position] = plain(row[position])
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._write_rows()

    def finish(self) -> None:
        if self._rows:
            self._write_rows()
        self._close()

    def _write_rows(self) -> None:
        columns = zip(zip(*self._rows, strict=True), self._schema, strict=True)
        arrays = [pa.array(column, field.type) for column, field in columns]
        self._write(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


class ParquetBulkWriters:
    """Creates writers of Parquet files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo,
        hadoop_config: Configuration | None = None,
        utc_timestamp: bool = False,
    ) -> BulkWriterFactory:
        """Write rows of this type, with its field names as column names.

        The only supported setting of a Hadoop configuration is ``parquet.compression``, by default
        SNAPPY. Timestamps are written without a time zone: ``utc_timestamp`` has no effect.
        """
        codec = codec_setting("parquet.compression", "SNAPPY", _PARQUET_CODECS, hadoop_config)
        return _ParquetFactory(check_columns(row_type, "Parquet"), codec)


class _ParquetFactory(_ColumnarFactory):
    def _open(self, file: BinaryIO) -> tuple[Callable[[pa.Table], None], Callable[[], None]]:
        writer = self._parquet_writer(file)
        return lambda table: _write_group(writer, table), writer.close

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        with self._parquet_writer(file) as writer:
            waiting: list[pa.Table] = []
            for piece in pieces:
                with pq.ParquetFile(piece) as source:
                    for group in range(source.num_row_groups):
                        waiting.append(source.read_row_group(group))
                        if sum(table.num_rows for table in waiting) >= ROWS_PER_GROUP:
                            _write_group(writer, pa.concat_tables(waiting))
                            waiting = []
            if waiting:
                _write_group(writer, pa.concat_tables(waiting))

    def _parquet_writer(self, file: BinaryIO) -> pq.ParquetWriter:
        return pq.ParquetWriter(file, arrow_schema(self._row_type), compression=self._compression)


def _write_group(writer: pq.ParquetWriter, table: pa.Table) -> None:
    writer.write_table(table, row_group_size=max(table.num_rows, 1))


class OrcBulkWriters:
    """Creates writers of ORC files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo,
        writer_properties: Configuration | None = None,
        hadoop_config: Configuration | None = None,
    ) -> BulkWriterFactory:
        """Write rows of this type, with its field names as column names.

        The only supported setting of both configurations is ``orc.compress``, by default ZLIB.
        """
        codec = codec_setting("orc.compress", "ZLIB", _ORC_CODECS, hadoop_config, writer_properties)
        for field in arrow_schema(check_columns(row_type, "ORC")):
            message = (
                f"column {field.name!r}: ORC has no type for a time of day; write it as a "
                "STRING or a LONG"
            )
            require("time64" not in str(field.type), message)
        return _OrcFactory(row_type, codec)


class _OrcFactory(_ColumnarFactory):
    def _open(self, file: BinaryIO) -> tuple[Callable[[pa.Table], None], Callable[[], None]]:
        writer = orc.ORCWriter(file, compression=self._compression)
        # Without it, a file without rows would have no columns.
        writer.write(arrow_schema(self._row_type).empty_table())
        return writer.write, writer.close

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        with orc.ORCWriter(file, compression=self._compression) as writer:
            for piece in pieces:
                source = orc.ORCFile(piece)
                for stripe in range(source.nstripes):
                    writer.write(pa.Table.from_batches([source.read_stripe(stripe)]))
