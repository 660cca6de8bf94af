"""Rows collected into tables, for files that hold columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.common.serialization import BulkWriter
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.arrow_types import arrow_schema, plain_for
from penstock.state.fitting import fit_for

__all__ = ["ROWS_PER_GROUP", "ColumnarWriter", "row_type_of"]

ROWS_PER_GROUP = 1 << 16
"""How many rows go into a file at once, and at least are in a group of a merged file."""


def row_type_of(row_type: RowTypeInfo, what: str) -> RowTypeInfo:
    """Refuse what is no row type, or has a field that is no column."""
    if not isinstance(row_type, RowTypeInfo):
        message = f"{what} files need a row type such as Types.ROW_NAMED(…); got {row_type!r}"
        raise TypeError(message)
    arrow_schema(row_type)
    return row_type


class ColumnarWriter(BulkWriter):
    """Checks rows as they come, and writes some ten thousand of them at a time."""

    def __init__(
        self,
        row_type: RowTypeInfo,
        write: Callable[[pa.Table], None],
        close: Callable[[], None],
    ) -> None:
        self._schema = arrow_schema(row_type)
        self._fit = fit_for(row_type)
        plain = enumerate(map(plain_for, row_type.field_types))
        self._plain = [(position, made) for position, made in plain if made is not None]
        self._write = write
        self._close = close
        self._rows: list[list[Any]] = []

    def add_element(self, element: Any) -> None:
        """Take a row that fits the type."""
        row = list(self._fit(element))
        for position, plain in self._plain:
            row[position] = plain(row[position])
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._write_rows()

    def finish(self) -> None:
        """Write what is left, and the end of the file."""
        if self._rows:
            self._write_rows()
        self._close()

    def _write_rows(self) -> None:
        columns = zip(zip(*self._rows, strict=True), self._schema, strict=True)
        arrays = [pa.array(column, field.type) for column, field in columns]
        self._write(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []
