"""What a checkpoint holds of the rows that wait for their commit."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.connectors.postgres.loading import RowBatch
from penstock.connectors.postgres.row_files import RowPiece

__all__ = ["OwedRows", "decode_owed", "encode"]


class OwedRows(msgspec.Struct, frozen=True, array_like=True):
    """A committable: rows of one subtask that one transaction brings into a table.

    ``target`` is the table's name in SQL. ``prepared`` says that there was a prepared transaction
    of that gid. It names no server and no role: whoever commits knows where. Files are named below
    ``root``, the directory of the job that wrote them.
    """

    gid: str
    table: str
    target: str
    batches: list[RowBatch]
    prepared: bool
    root: str = ""

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return sum(batch.rows for batch in self.batches)

    @property
    def pieces(self) -> list[RowPiece]:
        """The rows, in order."""
        return [piece for batch in self.batches for piece in batch.pieces]

    @property
    def paths(self) -> list[Path]:
        """Where the rows are that are in files."""
        return [piece.path(Path(self.root)) for piece in self.pieces if piece.name]

    def moved(self, root: Path) -> OwedRows:
        """Return the same with its files below another root."""
        return msgspec.structs.replace(self, root=str(root))


encode = msgspec.msgpack.encode
decode_owed = msgspec.msgpack.Decoder(OwedRows).decode
