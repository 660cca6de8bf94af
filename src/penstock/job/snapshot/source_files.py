"""Puts the files of a source into the snapshots of its stage."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from penstock.checkpoint.storage.metadata import SourceState
from penstock.common.config.locations import below
from penstock.common.storage_url import Location, StorageUrl, names_below
from penstock.connectors.contracts.snapshot_files import (
    SnapshotFile,
    SnapshotFiles,
    copy_snapshot_files,
    verify_snapshot_files,
)
from penstock.ids import OperatorUid
from penstock.savepoint.layout import operator_dir


class SourceFiles:
    """Verifies the source files that a checkpoint references, and copies them into savepoints.

    A checkpoint in a store gets copies, too: the source has its files on this machine.

    Called by the stage's checkpoint executor only.
    """

    def __init__(self, uid: OperatorUid, job: Location) -> None:
        self._job = job
        self._directory = f"{operator_dir(uid)}/source"
        self._verified: set[tuple[SnapshotFile, int]] = set()

    def keep(
        self, source: SourceState, savepoint: Location | None, checkpoint: Location | None = None
    ) -> SourceState:
        """Return the state of a source as a snapshot stores it.

        `checkpoint` is the directory that is deleted with it.

        Raises:
            CorruptStateError: a file is not the one that the source names.
        """
        kept = source.files
        if kept is None:
            return source
        place = below(self._job, kept.directory)
        if savepoint is not None:
            copy_snapshot_files(place, kept.files, savepoint / self._directory)
            directory = self._directory
        elif isinstance(place, Path) and isinstance(checkpoint, StorageUrl):
            copy_snapshot_files(place, kept.files, checkpoint / self._directory)
            # Beside the checkpoint, as far as the source is concerned: it may release what no
            # checkpoint needs any more, but what is in a savepoint says nothing about that.
            directory = f"{os.pardir}/{checkpoint.name}/{self._directory}"
        else:
            self._verify(place, kept.files)
            directory = self._relative(kept.directory)
        return replace(source, files=SnapshotFiles(directory, kept.files))

    def _relative(self, directory: str) -> str:
        """Return a path relative to the checkpoint if possible: the job directory may be moved."""
        names = names_below(self._job, below(self._job, directory))
        return directory if names is None else f"{os.pardir}/{names}"

    def _verify(self, directory: Location, files: list[SnapshotFile]) -> None:
        """Read the files that are new since the last checkpoint; a hard link is the same file."""
        found = {(file, _inode(directory / file.name)) for file in files}
        verify_snapshot_files(directory, [file for file, inode in found - self._verified])
        self._verified = found


def _inode(path: Location) -> int:
    """Return which file it is; one in a store is never replaced."""
    try:
        return path.stat().st_ino if isinstance(path, Path) else 0
    except FileNotFoundError:
        return 0
