"""The common part of backends whose deltas are files in the shared directory."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import msgspec

from penstock.state.backends.base import StateBackend, check_next
from penstock.state.backends.refs import FileRef, StagedName, StateLocation, StateRef
from penstock.state.delta import Delta, blocks_of
from penstock.state.files import DELTA, file_name, write_file


class ChangelogBackend(StateBackend):
    """Stages each delta as a file and publishes it by its name.

    ``durable`` syncs every file as it is written; otherwise ``sync`` does, when a checkpoint needs
    it. Unless ``incremental``, a compaction writes the whole base again.
    """

    def __init__(self, *, durable: bool = False, incremental: bool = True) -> None:
        self._durable = durable
        self._incremental = incremental

    def stage(
        self, location: StateLocation, delta: Delta, name: StagedName, version: int
    ) -> FileRef | bytes | None:
        if not len(delta):
            return None
        file, blocks = file_name(version, name, DELTA), blocks_of(delta)
        return write_file(location.shared_dir, file, version, blocks, durable=self._durable)

    def publish(self, ref: StateRef, version: int, staged: FileRef | bytes | None) -> StateRef:
        check_next(ref, version)
        if staged is None:
            return msgspec.structs.replace(ref, version=version)
        if not isinstance(staged, FileRef) or staged.version != version:
            message = f"expected a staged file of version {version}; got {staged!r}"
            raise ValueError(message)
        return msgspec.structs.replace(ref, version=version, deltas=(*ref.deltas, staged))

    def _nothing_to_compact(self, ref: StateRef) -> bool:
        return not ref.deltas and (self._incremental or ref.base_version is None)


def check_written_by(backend: str, ref: StateRef, *other_fields: str) -> None:
    """Reject a ref of another backend, instead of reading it as an empty state."""
    for field in other_fields:
        if getattr(ref, field) is not None:
            message = (
                f"another backend than {backend!r} wrote {field!r} of this state; use that one"
            )
            raise ValueError(message)
