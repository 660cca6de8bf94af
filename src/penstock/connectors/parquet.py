"""Parquet files for file sinks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.parquet_types import arrow_schema, plain_for
from penstock.state.fitting import fit_for

__all__ = ["ParquetBulkWriters"]

_ROWS_PER_GROUP = 1 << 16
_COMPRESSION = "snappy"


class ParquetBulkWriters:
    """Makes writers of Parquet files."""

    @staticmethod
    def for_row_type(row_type: RowTypeInfo) -> BulkWriterFactory:
        """Write rows of this type, with its field names as column names; snappy-compressed."""
        if not isinstance(row_type, RowTypeInfo):
            message = f"Parquet files need a row type such as Types.ROW_NAMED(…); got {row_type!r}"
            raise TypeError(message)
        arrow_schema(row_type)
        return _Factory(row_type)


class _Factory(BulkWriterFactory):
    def __init__(self, row_type: RowTypeInfo) -> None:
        self._row_type = row_type

    def create(self, file: BinaryIO) -> BulkWriter:
        return _Writer(file, self._row_type)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        schema = arrow_schema(self._row_type)
        with pq.ParquetWriter(file, schema, compression=_COMPRESSION) as writer:
            waiting: list[pa.Table] = []
            for piece in pieces:
                with pq.ParquetFile(piece) as source:
                    for group in range(source.num_row_groups):
                        waiting.append(source.read_row_group(group))
                        if sum(table.num_rows for table in waiting) >= _ROWS_PER_GROUP:
                            _write_group(writer, waiting)
                            waiting = []
            if waiting:
                _write_group(writer, waiting)


def _write_group(writer: pq.ParquetWriter, tables: Sequence[pa.Table]) -> None:
    table = pa.concat_tables(tables)
    writer.write_table(table, row_group_size=max(table.num_rows, 1))


class _Writer(BulkWriter):
    def __init__(self, file: BinaryIO, row_type: RowTypeInfo) -> None:
        self._schema = arrow_schema(row_type)
        self._fit = fit_for(row_type)
        plain = enumerate(map(plain_for, row_type.field_types))
        self._plain = [(position, made) for position, made in plain if made is not None]
        self._writer = pq.ParquetWriter(file, self._schema, compression=_COMPRESSION)
        self._rows: list[list[Any]] = []

    def add_element(self, element: Any) -> None:
        row = list(self._fit(element))
        for position, plain in self._plain:
            row[position] = plain(row[position])
        self._rows.append(row)
        if len(self._rows) >= _ROWS_PER_GROUP:
            self._write_rows()

    def finish(self) -> None:
        if self._rows:
            self._write_rows()
        self._writer.close()

    def _write_rows(self) -> None:
        columns = zip(zip(*self._rows, strict=True), self._schema, strict=True)
        arrays = [pa.array(column, field.type) for column, field in columns]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=len(self._rows))
        self._rows = []
