"""`penstock state export`: the rows of a state as CSV or Parquet."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from penstock.cli.commands.state.selection import (
    Selection,
    checkpoint_option,
    snapshot_argument,
)
from penstock.cli.progress import Progress
from penstock.common.new_files import create_file, naming
from penstock.errors import ExistingFileError
from penstock.errors.base import plural
from penstock.snapshots.export import csv_schema, csv_table, exported_schema, exported_tables

_STDOUT = "-"


@click.command()
@snapshot_argument
@checkpoint_option
@click.option(
    "--operator", required=True, metavar="UID", help="The uid of the operator, or its name."
)
@click.option("--state", required=True, metavar="NAME", help="The name of the state.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet"]),
    help="By default what the name of the file ends with.",
)
@click.option(
    "--output",
    required=True,
    metavar="FILE",
    help="A new file; - writes to stdout.",
)
@click.option(
    "--with-stored-keys", is_flag=True, help="Also the keys exactly as they are stored (key_bytes)."
)
def export(
    selection: Selection,
    checkpoint: int | None,
    operator: str,
    state: str,
    file_format: str | None,
    output: str,
    with_stored_keys: bool,
) -> None:
    """Write all rows of one state of a checkpoint or savepoint into a CSV or Parquet file.

    They have the readable columns of savepoints, and are ordered by key group. FILE appears when it
    is complete.
    """
    file_format = file_format or Path(output).suffix.lower().removeprefix(".")
    if file_format not in ("csv", "parquet"):
        message = f"{output} ends with neither .csv nor .parquet: give --format"
        raise click.UsageError(message)
    write = _CsvRows if file_format == "csv" else _ParquetRows
    if output != _STDOUT and os.path.lexists(output):
        raise ExistingFileError(output)
    with selection.reading(checkpoint) as snapshot, Progress() as progress:
        found = snapshot.keyed_state(snapshot.operator(operator), state)
        schema = exported_schema(found, with_stored_keys=with_stored_keys)
        target = nullcontext(_Stdout()) if output == _STDOUT else _new_file(Path(output))
        with target as file, write(file, schema) as rows:
            count = 0
            try:
                for table in exported_tables(snapshot, found, schema, progress.show):
                    rows.write(table)
                    count += table.num_rows
            except BaseException:
                if isinstance(file, _Stdout):
                    file.has_failed = True
                raise
    if output != _STDOUT:
        click.echo(f"{output}: {plural(count, 'row')}", err=True)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file under a temporary name, and give it its own when it is complete.

    Raises:
        ExistingFileError: there is a file with this name.
    """
    hidden = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    with naming(path), create_file(hidden) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
        try:
            # Unlike a rename, a link replaces no file that has appeared meanwhile.
            path.hardlink_to(hidden)
        except FileExistsError:
            raise ExistingFileError(str(path)) from None
        except OSError:
            # This file system has no links.
            if os.path.lexists(path):
                raise ExistingFileError(str(path)) from None
            hidden.rename(path)
    hidden.unlink(missing_ok=True)


class _Stdout:
    """The standard output as a file whose writers want to know where they are."""

    closed = False

    def __init__(self) -> None:
        self._position = 0
        self.has_failed = False
        """Whether nothing more is written, so that what is incomplete does not look complete."""

    def write(self, data: bytes) -> int:
        if self.has_failed:
            return len(data)
        written = sys.stdout.buffer.write(data)
        self._position += written
        return written

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    def close(self) -> None:
        self.flush()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _ParquetRows:
    def __init__(self, file: BinaryIO | _Stdout, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def __enter__(self) -> _ParquetRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()


class _CsvRows:
    def __init__(self, file: BinaryIO | _Stdout, schema: pa.Schema) -> None:
        self._schema = csv_schema(schema)
        self._writer = pa_csv.CSVWriter(file, self._schema)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(csv_table(table, self._schema))

    def __enter__(self) -> _CsvRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()
