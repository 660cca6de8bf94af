"""The task's half of the PostgreSQL sink: rows encoded once, where they come from."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.common.row import Row, RowKind
from penstock.connectors.postgres.copy_block import block_encoder
from penstock.connectors.postgres.copy_text import UNWRITABLE, LineEncoder
from penstock.connectors.postgres.records import RecordReader
from penstock.connectors.postgres.row_files import RowFiles, RowPiece, RowSpool
from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.errors import UnsuitableTableError, UnwritableValueError

__all__ = ["RowShape", "RowWriter", "StagedRows", "decode_staged"]

_LINES_PER_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class RowShape:
    """What rows look like: the table's columns they fill, and how.

    With ``deletes`` every line begins with one more value: whether the row is to be removed.
    """

    table: str
    columns: tuple[str, ...] | None
    json_columns: frozenset[str]
    deletes: bool


class StagedRows(msgspec.Struct, frozen=True, array_like=True):
    """What a writer staged.

    ``columns`` is None for all of the table. ``width`` is how many values a row has. ``arrays``
    are positions where lists were written as arrays. ``deletes`` is how many rows only take
    others away.
    """

    columns: tuple[str, ...] | None
    width: int
    rows: int
    piece: RowPiece
    arrays: tuple[int, ...]
    deletes: int = 0


decode_staged = msgspec.msgpack.Decoder(StagedRows).decode


class RowWriter(SinkWriter):
    """Encodes rows line by line, into memory while they are few, then into a file of its own."""

    def __init__(self, shape: RowShape, context: WriterContext) -> None:
        self._reader = RecordReader(shape.table, shape.columns, context.type_info)
        self._json_columns = shape.json_columns
        self._deletes = shape.deletes
        if self._reader.columns is None and shape.json_columns:
            reason = "set_json_columns() goes by names, and the rows have none: use set_columns()"
            raise UnsuitableTableError(shape.table, reason)
        self._values = self._reader.values
        self._block = None
        if not shape.json_columns:
            self._block = block_encoder(context.type_info, "f\\t" if shape.deletes else "")
        self.takes_many = self._block is not None
        self._encoder: LineEncoder | None = None
        self._line: Callable[[Any], str] = self._first_line
        files = RowFiles(context.work_dir or context.staging_dir, context.attempt)
        self._spool = RowSpool(files, context.name)
        self._lines: list[str] = []
        self._rows = 0
        self._deleted = 0

    def write(self, value: Any) -> None:
        values = self._values(value)
        try:
            line = self._line(values)
        except UNWRITABLE as error:
            raise self._encoder_for(values).blamed(values) from error
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
            reason = f"a row of kind {kind} changes another one; that needs set_key_columns()"
            raise UnwritableValueError(None, row, reason)
        if kind is RowKind.UPDATE_BEFORE:
            return None  # the row behind it says what it becomes
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
