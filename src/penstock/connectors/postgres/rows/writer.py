"""Writer of the PostgreSQL sink: encodes rows as COPY text in the tasks, and stages them."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.common.row import Row, RowKind
from penstock.connectors.contracts.sink import SinkWriter, WriterContext
from penstock.connectors.postgres.rows.block_encoder import block_encoder
from penstock.connectors.postgres.rows.record_reader import RecordReader
from penstock.connectors.postgres.rows.text_encoder import UNWRITABLE, LineEncoder
from penstock.connectors.staging.staged_output import Spool, StagedOutput
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import UnsuitableTableError, UnwritableValueError

_LINES_PER_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How rows are encoded: the columns of the table, and their kinds.

    With ``deletes`` every line begins with a flag that marks a delete.
    """

    table: str
    columns: tuple[str, ...] | None
    json_columns: frozenset[str]
    deletes: bool


class StagedRows(msgspec.Struct, frozen=True, array_like=True):
    """What a writer staged in one micro-batch.

    ``columns`` is None for all columns of the table. ``width`` is the number of values of a row,
    ``arrays`` the positions where lists were written as arrays, ``deletes`` the number of deletes.
    """

    columns: tuple[str, ...] | None
    width: int
    rows: int
    output: StagedOutput
    arrays: tuple[int, ...]
    deletes: int = 0


decode_staged = msgspec.msgpack.Decoder(StagedRows).decode


class PostgresWriter(SinkWriter):
    """Encodes rows as lines of COPY text, and spools them to memory or a file."""

    def __init__(self, layout: RowLayout, context: WriterContext) -> None:
        self._reader = RecordReader(layout.table, layout.columns, context.type_info)
        self._json_columns = layout.json_columns
        self._deletes = layout.deletes
        if self._reader.columns is None and layout.json_columns:
            reason = (
                "set_json_columns() needs column names, but the rows have none: use set_columns()"
            )
            raise UnsuitableTableError(layout.table, reason)
        self._values = self._reader.values
        self._block = None
        if not layout.json_columns:
            self._block = block_encoder(context.type_info, "f\\t" if layout.deletes else "")
        self.supports_write_many = self._block is not None
        self._encoder: LineEncoder | None = None
        self._line: Callable[[Any], str] = self._first_line
        staging = StagingDirectory(context.work_dir or context.staging_dir, context.attempt)
        self._spool = Spool(staging, f"{context.name}.rows")
        self._lines: list[str] = []
        self._rows = 0
        self._deleted = 0

    def write(self, value: Any) -> None:
        values = self._values(value)
        try:
            line = self._line(values)
        except UNWRITABLE as error:
            raise self._encoder_for(values).error_for(values) from error
        if value.__class__ is Row and value._row_kind is not RowKind.INSERT:
            marked = self._mark(value, line)
            if marked is None:
                return
            line = marked
        elif self._deletes:
            line = f"f\t{line}"
        lines = self._lines
        lines.append(line)
        if len(lines) == _LINES_PER_BLOCK:
            self._flush()

    def write_many(self, values: list[Any]) -> bool:
        text = self._block(values) if self._block is not None else None
        if text is None or not self._reader.takes(len(values[0])):
            return False
        self._encoder_for(self._values(values[0]))
        self._flush()
        self._rows += len(values)
        self._spool.add(text.encode())
        return True

    def stage(self) -> bytes:
        self._flush()
        if not self._rows or self._encoder is None:
            return b""
        return msgspec.msgpack.encode(
            StagedRows(
                self._reader.columns,
                self._encoder.width,
                self._rows,
                self._spool.finish(),
                tuple(sorted(self._encoder.arrays)),
                self._deleted,
            )
        )

    def abort(self) -> None:
        self._spool.abort()

    def _first_line(self, values: Sequence[Any]) -> str:
        self._line = self._encoder_for(values).line
        return self._line(values)

    def _encoder_for(self, values: Sequence[Any]) -> LineEncoder:
        if self._encoder is None:
            reader = self._reader
            self._encoder = LineEncoder(
                reader.positions(len(values)), reader.columns, self._json_columns, reader.classes
            )
        return self._encoder

    def _mark(self, row: Row, line: str) -> str | None:
        kind = row.get_row_kind()
        if not self._deletes:
            reason = f"a row of kind {kind} changes another row, which needs set_key_columns()"
            raise UnwritableValueError(None, row, reason)
        if kind is RowKind.UPDATE_BEFORE:
            return None  # the UPDATE_AFTER row that follows replaces it
        if kind is RowKind.DELETE:
            self._deleted += 1
            return f"t\t{line}"
        return f"f\t{line}"

    def _flush(self) -> None:
        if not self._lines:
            return
        self._rows += len(self._lines)
        self._spool.add("".join(self._lines).encode())
        self._lines.clear()
