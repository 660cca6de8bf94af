"""Committables of the PostgreSQL sink: staged rows of one subtask and checkpoint."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.connectors.postgres.names import upload_name_of
from penstock.connectors.staging.staged_output import StagedOutput
from penstock.connectors.staging.uploads import UPLOAD


class RowBatch(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one subtask for some columns of a table, in order."""

    columns: tuple[str, ...]
    rows: int
    outputs: list[StagedOutput]


class PostgresCommittable(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one subtask that one transaction writes into a table.

    ``target`` is the table's quoted name, which is not used any more when it comes from a snapshot.
    ``prepared`` says that a transaction with that gid was
    prepared. Server and role are those of the committer. Files are relative to ``root``, where the
    job that wrote them has its files: a directory or a place in a store.
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
    def files(self) -> list[tuple[Path, int]]:
        """The staged files with their sizes, in order."""
        root = Path(self.root)
        return [(one.path(root), one.size) for one in self.outputs if one.name]

    @property
    def paths(self) -> list[Path]:
        """The staged files."""
        return [path for path, _ in self.files]

    @property
    def upload(self) -> str:
        """What a store may have of the files, as one file with this name; empty if there are none.

        It has those of prepared transactions only for savepoints.
        """
        has_files = any(one.name for one in self.outputs)
        return f"{upload_name_of(self.gid)}{UPLOAD}" if has_files else ""

    def moved(self, root: Path) -> PostgresCommittable:
        """Return the same committable with its files below another root."""
        return msgspec.structs.replace(self, root=str(root))


encode = msgspec.msgpack.encode
decode_committable = msgspec.msgpack.Decoder(PostgresCommittable).decode
