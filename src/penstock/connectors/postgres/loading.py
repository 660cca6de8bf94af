"""Rows from files into the table, without looking at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.connectors.postgres.database import Connection
from penstock.connectors.postgres.names import listed
from penstock.connectors.postgres.row_files import RowPiece, read_blocks

__all__ = ["RowBatch", "copy_into", "load"]


class RowBatch(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one subtask for some columns of a table, in order."""

    columns: tuple[str, ...]
    rows: int
    pieces: list[RowPiece]


def copy_into(
    connection: Connection,
    target: str,
    columns: Sequence[str],
    root: Path,
    pieces: Sequence[RowPiece],
) -> None:
    """COPY pieces, whose files are below ``root``, into a table whose name is quoted."""
    statement = f"COPY {target} ({listed(columns)}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block in read_blocks(root, pieces):
            copy.write(block)


def load(connection: Connection, target: str, root: Path, batches: Sequence[RowBatch]) -> None:
    """COPY batches into a table, in order, inside a transaction of the caller."""
    for batch in batches:
        copy_into(connection, target, batch.columns, root, batch.pieces)
