"""The files of a savepoint, as its metadata names them."""

from __future__ import annotations

import msgspec

from penstock.state.table import TableInfo, TableTtl

__all__ = ["SavepointFile"]


class SavepointFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one subtask held of one state: a Parquet file, and how to prove and place it.

    ``path`` is relative to the savepoint's directory, with ``/`` between its parts. ``crc`` is the
    CRC-32 of the whole file. The key groups in it lie from ``first_key_group`` up to, not
    including, ``stop_key_group``; a file without rows is there because the state was declared.
    """

    state: str
    kind: str
    type: str
    generation: int
    table: int
    subtask: int
    path: str
    rows: int
    size: int
    crc: int
    first_key_group: int
    stop_key_group: int
    windows: str = ""
    ttl: TableTtl | None = None

    @property
    def info(self) -> TableInfo:
        """What the registry of the subtask said about the state."""
        return TableInfo(self.table, self.kind, self.type, self.generation, self.windows, self.ttl)
