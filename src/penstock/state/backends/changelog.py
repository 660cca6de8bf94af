"""What backends share whose deltas lie in files of the shared directory."""

# ruff: noqa: D102  the contract says what these methods do

from __future__ import annotations

import msgspec

from penstock.state.backends.base import FileRef, StagedName, StateBackend, StatePlace, StateRef
from penstock.state.delta import Delta, blocks_of
from penstock.state.files import DELTA, file_name, write_file

__all__ = ["ChangelogBackend", "check_no_other"]


class ChangelogBackend(StateBackend):
    """Stages each delta as a file and publishes it by its name.

    ``durable`` syncs every file as it is written; otherwise ``sync`` does, when a checkpoint
    needs them. Unless ``incremental``, a fold writes all of its base anew.
    """

    def __init__(self, *, durable: bool = False, incremental: bool = True) -> None:
        self._durable = durable
        self._incremental = incremental

    def stage(
        self, place: StatePlace, delta: Delta, name: StagedName, version: int
    ) -> FileRef | bytes | None:
        if not len(delta):
            return None
        file = file_name(version, name, DELTA)
        return write_file(place.shared_dir, file, version, blocks_of(delta), durable=self._durable)

    def publish(self, ref: StateRef, version: int, staged: FileRef | bytes | None) -> StateRef:
        if version <= ref.version:
            message = f"version {version} does not come after {ref.version}"
            raise ValueError(message)
        if staged is None:
            return msgspec.structs.replace(ref, version=version)
        if not isinstance(staged, FileRef) or staged.version != version:
            message = f"expected a staged file of version {version}; got {staged!r}"
            raise ValueError(message)
        return msgspec.structs.replace(ref, version=version, deltas=(*ref.deltas, staged))

    def freeze(self, ref: StateRef) -> StateRef:
        return ref

    def _nothing_to_fold(self, ref: StateRef) -> bool:
        return not ref.deltas and (self._incremental or ref.base_version is None)


def check_no_other(ref: StateRef, *others: str) -> None:
    """Refuse a ref that another backend wrote, instead of seeing an empty state in it."""
    for field in others:
        if getattr(ref, field) is not None:
            message = f"another backend keeps its state in {field!r}: restore it with that one"
            raise ValueError(message)
