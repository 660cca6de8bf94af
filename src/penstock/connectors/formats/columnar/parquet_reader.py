"""Reads Parquet files, in ranges of whole row groups."""
# ruff: noqa: D102 - the base class documents these methods

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.configuration import Configuration
from penstock.common.row import rows_of
from penstock.common.storage_url import Location
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.contracts.source import CHUNK_RECORDS
from penstock.connectors.formats.columnar.writers import check_columns
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.reader_format import BulkFormat
from penstock.errors import UnreadableFileError
from penstock.types.arrow import type_to_read, values_of


@contextmanager
def _read_errors(path: Location, where: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # of the store, which has not answered
        first_line = str(error).strip().partition("\n")[0]
        raise UnreadableFileError(str(path), where, first_line) from error


def _open(file: InputFile) -> pq.ParquetFile:
    with _read_errors(file.path, "its footer"):
        return pq.ParquetFile(file.buffered)


def _groups(file: pq.ParquetFile) -> list[tuple[int, int]]:
    """Return where row groups start, in ascending order, and their numbers."""
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    return sorted((_start(group), number) for number, group in enumerate(groups))


def _start(group: Any) -> int:
    columns = map(group.column, range(group.num_columns))
    # A dictionary page, if there is one, is before the data pages.
    return min((c.dictionary_page_offset or c.data_page_offset for c in columns), default=0)


def _batches(
    path: Location, file: pq.ParquetFile, start: int, end: int, columns: list[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the columns of the row groups that start in a range, each with its group's name."""
    for begins, group in _groups(file):
        if start <= begins < end:
            where = f"row group {group}"
            with _read_errors(path, where):
                for batch in file.iter_batches(CHUNK_RECORDS, [group], columns, use_threads=False):
                    yield where, batch


class ParquetColumnarRowInputFormat(BulkFormat):
    """Reads rows from the named columns of Parquet files; other columns are ignored.

    A column that a file does not have is None in its rows. ``batch_size``, ``hadoop_config`` and
    ``is_utc_timestamp`` have no effect: batches have a fixed size, and timestamps are read as they
    were written, without a time zone.
    """

    def __init__(
        self,
        row_type: RowTypeInfo,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        self._row_type = check_columns(row_type, "Parquet")
        self._is_case_sensitive = is_case_sensitive

    def type_info(self) -> TypeInformation:
        return self._row_type

    def splittable(self, path: Path) -> bool:
        return True

    def block_starts(self, file: InputFile) -> Sequence[int]:
        with _open(file) as parquet:
            return [start for start, _ in _groups(parquet)]

    def bytes_per_record(self, file: InputFile) -> float:
        with _open(file) as parquet:
            rows: int = parquet.metadata.num_rows
            return file.size / max(1, rows)

    def read(self, file: InputFile, start: int, end: int) -> Iterator[list[Any]]:
        file.check_length(end)
        path = file.path
        with _open(file) as parquet:
            fields = self._fields(path, parquet.schema_arrow)
            columns = [field.column for field in fields if field.column is not None]
            for where, batch in _batches(path, parquet, start, end, columns):
                values = [_values(path, where, field, batch) for field in fields]
                yield rows_of(self._row_type.field_names, values)

    def _fields(self, path: Location, schema: pa.Schema) -> list[_Field]:
        found = {self._column_key(name): name for name in schema.names}
        fields = []
        for name, wanted in zip(
            self._row_type.field_names, self._row_type.field_types, strict=True
        ):
            column = found.get(self._column_key(name))
            to_read = None
            if column is not None:
                try:
                    to_read = type_to_read(schema.field(column).type, wanted, name)
                except ValueError as error:
                    raise UnreadableFileError(str(path), "its schema", str(error)) from None
            fields.append(_Field(name, wanted, column, to_read))
        return fields

    def _column_key(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()


class _Field(NamedTuple):
    """A field of the rows: its column in a file, if there is one, and the type to cast that to."""

    name: str
    wanted: TypeInformation
    column: str | None
    to_read: pa.DataType | None


def _values(path: Location, where: str, field: _Field, batch: pa.RecordBatch) -> list[Any]:
    if field.column is None:
        return [None] * batch.num_rows
    column = batch.column(field.column)
    if column.type != field.to_read:
        with _read_errors(path, f"{where}, field {field.name!r}"):
            column = column.cast(field.to_read)
    return values_of(column, field.wanted)
