"""Committables of the PostgreSQL sink: staged rows of one subtask and checkpoint."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.connectors.staging.staged_output import StagedOutput


class RowBatch(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one subtask for some columns of a table, in order."""

    columns: tuple[str, ...]
    rows: int
    outputs: list[StagedOutput]


class PostgresCommittable(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one subtask that one transaction writes into a table.

    ``target`` is the table's quoted name, which is not used any more when it comes from a snapshot.
    ``prepared`` says that a transaction with that gid was
    prepared. Server and role are those of the committer. Files are relative to ``root``, the
    directory of the job that wrote them.
    """

    gid: str
    table: str
    target: str
    batches: list[RowBatch]
    prepared: bool
    root: str = ""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(batch.rows for batch in self.batches)

    @property
    def outputs(self) -> list[StagedOutput]:
        """The rows, in order."""
        return [output for batch in self.batches for output in batch.outputs]

    @property
    def paths(self) -> list[Path]:
        """The staged files."""
        return [one.path(Path(self.root)) for one in self.outputs if one.name]

    def moved(self, root: Path) -> PostgresCommittable:
        """Return the same committable with its files below another root."""
        return msgspec.structs.replace(self, root=str(root))


encode = msgspec.msgpack.encode
decode_committable = msgspec.msgpack.Decoder(PostgresCommittable).decode
