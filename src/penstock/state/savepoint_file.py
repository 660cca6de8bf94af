"""The files of a savepoint, as its metadata lists them."""

from __future__ import annotations

import msgspec

from penstock.state.registry.meta_info import StateMetaInfo, TtlMetaInfo


class SavepointFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Parquet file of one state of one subtask.

    ``path`` is relative to the savepoint's directory, with ``/`` between its parts. ``crc`` is the
    CRC-32 of the whole file. Its key groups go from ``first_key_group`` up to, not including,
    ``stop_key_group``; a file without rows records that the state was declared.
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
    ttl: TtlMetaInfo | None = None
    queryable: str = ""

    @property
    def info(self) -> StateMetaInfo:
        """The state's entry in the registry of the subtask."""
        return StateMetaInfo(
            self.table,
            self.kind,
            self.type,
            self.generation,
            self.windows,
            self.ttl,
            self.queryable,
        )
