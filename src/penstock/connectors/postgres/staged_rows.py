"""The task's half of the PostgreSQL sink: rows encoded once, where they come from."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from penstock.common.row import Row, RowKind
from penstock.connectors.postgres.copy_text import encoder_of
from penstock.connectors.postgres.records import columns_of, values_of
from penstock.connectors.postgres.row_files import LARGEST_INLINE, RowFiles, RowPiece
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
    are positions where lists were written as arrays.
    """

    columns: tuple[str, ...] | None
    width: int
    rows: int
    piece: RowPiece
    arrays: tuple[int, ...]


decode_staged = msgspec.msgpack.Decoder(StagedRows).decode


class RowWriter(SinkWriter):
    """Encodes rows line by line, into memory while they are few, then into a file of its own."""

    def __init__(self, shape: RowShape, context: WriterContext) -> None:
        columns = columns_of(shape.columns, context.type_info)
        if columns is None and shape.json_columns:
            reason = "set_json_columns() goes by names, and the rows have none: use set_columns()"
            raise UnsuitableTableError(shape.table, reason)
        self._columns = columns
        self._deletes = shape.deletes
        self._values = values_of(shape.table, columns, context.type_info)
        names = dict(enumerate(columns or ()))
        self._encode = encoder_of(names, shape.json_columns)
        self._json = {at for at, name in names.items() if name in shape.json_columns}
        self._files = RowFiles(context.work_dir or context.staging_dir, context.attempt)
        self._name = context.name
        self._lines: list[str] = []
        self._blocks: list[bytes] = []
        self._file: BinaryIO | None = None
        self._path = ""
        self._size = 0
        self._rows = 0
        self._width: int | None = None
        self._arrays: set[int] = set()

    def write(self, value: Any) -> None:
        values = self._values(value)
        if len(values) != self._width:
            self._check_width(value, len(values))
        line = self._encode(values)
        if "{" in line:
            self._note_arrays(values)
        if value.__class__ is Row and value._row_kind is not RowKind.INSERT:
            marked = self._mark(value, line)
            if marked is None:
                return
            line = marked
        elif self._deletes:
            line = f"f\t{line}"
        self._lines.append(line)
        self._rows += 1
        if len(self._lines) >= _LINES_PER_BLOCK:
            self._flush()

    def stage(self) -> bytes:
        self._flush()
        if not self._rows:
            return b""
        data = b"".join(self._blocks)
        if self._file is not None:
            self._file.close()
        return msgspec.msgpack.encode(
            StagedRows(
                self._columns,
                self._width or 0,
                self._rows,
                RowPiece(self._size, data, self._path),
                tuple(sorted(self._arrays - self._json)),
            )
        )

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()
            self._files.piece(self._name).unlink(missing_ok=True)

    def _check_width(self, record: Any, width: int) -> None:
        if self._width is not None or width == 0:
            reason = f"it has {width} values where others have {self._width}"
            raise UnwritableValueError(None, record, reason)
        self._width = width

    def _note_arrays(self, values: Sequence[Any]) -> None:
        self._arrays.update(at for at, v in enumerate(values) if isinstance(v, list | tuple))

    def _mark(self, row: Row, line: str) -> str | None:
        kind = row.get_row_kind()
        if not self._deletes:
            reason = f"a row of kind {kind} changes another one; that needs set_key_columns()"
            raise UnwritableValueError(None, row, reason)
        if kind is RowKind.UPDATE_BEFORE:
            return None  # the row behind it says what it becomes
        return f"{'t' if kind is RowKind.DELETE else 'f'}\t{line}"

    def _flush(self) -> None:
        if not self._lines:
            return
        self._lines.append("")
        data = "\n".join(self._lines).encode()
        self._lines.clear()
        self._size += len(data)
        if self._file is None and self._size <= LARGEST_INLINE:
            self._blocks.append(data)
            return
        if self._file is None:
            path = self._files.piece(self._name)
            self._file = path.open("xb")
            self._path = str(path)
        for block in (*self._blocks, data):
            self._file.write(block)
        self._blocks.clear()
