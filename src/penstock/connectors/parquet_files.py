"""Parquet files for file sources, cut between row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.configuration import Configuration
from penstock.common.row import rows_of
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.arrow_values import type_to_read, values_of
from penstock.connectors.columnar_writer import row_type_of
from penstock.connectors.reader_format import BulkFormat
from penstock.connectors.source import CHUNK_RECORDS
from penstock.errors import ChangedFileError, UnreadableFileError

__all__ = ["ParquetColumnarRowInputFormat", "ParquetFileReader"]


class ParquetFileReader:
    """The row groups of one Parquet file, each of which belongs to the range it starts in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _told(path, "its footer"):
            self.file = pq.ParquetFile(path)
        groups = map(self.file.metadata.row_group, range(self.file.num_row_groups))
        self._starts = [_start(group) for group in groups]

    def starts(self) -> list[int]:
        """Return where row groups start, in order."""
        return sorted(self._starts)

    def batches(
        self, start: int, end: int, columns: Sequence[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Give the columns of the row groups in a range, and the place each is from."""
        size = self._path.stat().st_size
        if size < end:
            raise ChangedFileError(str(self._path), end, size)
        for group, begins in sorted(enumerate(self._starts), key=lambda found: found[1]):
            if start <= begins < end:
                where = f"row group {group}"
                with _told(self._path, where):
                    for batch in self.file.iter_batches(
                        CHUNK_RECORDS, [group], list(columns), use_threads=False
                    ):
                        yield where, batch

    def __enter__(self) -> ParquetFileReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


@contextmanager
def _told(path: Path, where: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFileError(str(path), where, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _start(group: Any) -> int:
    columns = [group.column(number) for number in range(group.num_columns)]
    # A dictionary, where there is one, lies before the data.
    offsets = [
        offset
        for column in columns
        for offset in (column.dictionary_page_offset, column.data_page_offset)
        if offset
    ]
    return min(offsets, default=0)


class ParquetColumnarRowInputFormat(BulkFormat):
    """Rows of Parquet files: the named columns, whatever others there are.

    A column that a file does not have is None in its rows. ``batch_size``, ``hadoop_config`` and
    ``is_utc_timestamp`` are accepted: batches are as large as is good, and timestamps are read as
    they were written, in no time zone.
    """

    def __init__(
        self,
        row_type: RowTypeInfo,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        self._row_type = row_type_of(row_type, "Parquet")
        self._is_case_sensitive = is_case_sensitive

    def type_info(self) -> TypeInformation:
        """Return the row type."""
        return self._row_type

    def splittable(self, path: Path) -> bool:
        """Tell that files may be cut."""
        return True

    def block_starts(self, path: Path) -> Sequence[int]:
        """Tell where row groups start."""
        with ParquetFileReader(path) as reader:
            return reader.starts()

    def bytes_per_record(self, path: Path) -> float:
        """Divide the file by its rows."""
        with ParquetFileReader(path) as reader:
            rows: int = reader.file.metadata.num_rows
            return path.stat().st_size / max(1, rows)

    def read(self, path: Path, start: int, end: int) -> Iterator[list[Any]]:
        """Give the rows in lists."""
        with ParquetFileReader(path) as reader:
            plan = self._plan(path, reader.file.schema_arrow)
            columns = [name for name, _ in plan if name is not None]
            for where, batch in reader.batches(start, end, columns):
                values = self._values(path, where, plan, batch)
                yield rows_of(self._row_type.field_names, values)

    def _plan(self, path: Path, schema: pa.Schema) -> list[tuple[str | None, pa.DataType | None]]:
        """Say for each field which column it is, and what to cast that to."""
        found = {self._spelled(name): name for name in schema.names}
        plan: list[tuple[str | None, pa.DataType | None]] = []
        for field, wanted in zip(
            self._row_type.field_names, self._row_type.field_types, strict=True
        ):
            name = found.get(self._spelled(field))
            if name is None:
                plan.append((None, None))
                continue
            try:
                plan.append((name, type_to_read(schema.field(name).type, wanted, field)))
            except ValueError as error:
                raise UnreadableFileError(str(path), "its schema", str(error)) from None
        return plan

    def _values(
        self,
        path: Path,
        where: str,
        plan: Sequence[tuple[str | None, pa.DataType | None]],
        batch: pa.RecordBatch,
    ) -> list[list[Any]]:
        values = []
        for (name, to_read), wanted, field in zip(
            plan, self._row_type.field_types, self._row_type.field_names, strict=True
        ):
            if name is None:
                values.append([None] * batch.num_rows)
                continue
            column = batch.column(name)
            if column.type != to_read:
                with _told(path, f"{where}, field {field!r}"):
                    column = column.cast(to_read)
            values.append(values_of(column, wanted))
        return values

    def _spelled(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()
