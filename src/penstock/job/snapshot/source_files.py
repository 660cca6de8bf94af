"""Puts the files of a source into the snapshots of its stage."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from penstock.checkpoint.storage.metadata import SourceState
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

    Called by the stage's checkpoint executor only.
    """

    def __init__(self, uid: OperatorUid, job: Path) -> None:
        self._job = job
        self._directory = f"{operator_dir(uid)}/source"
        self._verified: set[tuple[SnapshotFile, int]] = set()

    def keep(self, source: SourceState, savepoint: Path | None) -> SourceState:
        """Return the state of a source as a snapshot stores it.

        Raises:
            CorruptStateError: a file is not the one that the source names.
        """
        kept = source.files
        if kept is None:
            return source
        if savepoint is None:
            self._verify(kept)
            return replace(source, files=SnapshotFiles(self._relative(kept.directory), kept.files))
        copy_snapshot_files(kept, savepoint / self._directory)
        return replace(source, files=SnapshotFiles(self._directory, kept.files))

    def _relative(self, directory: str) -> str:
        """Return a path relative to the checkpoint if possible: the job directory may be moved."""
        place = Path(directory)
        if not place.is_relative_to(self._job):
            return directory
        return str(Path(os.pardir, place.relative_to(self._job)))

    def _verify(self, kept: SnapshotFiles) -> None:
        """Read the files that are new since the last checkpoint; a hard link is the same file."""
        directory = Path(kept.directory)
        found = {(file, _inode(directory / file.name)) for file in kept.files}
        verify_snapshot_files(directory, [file for file, inode in found - self._verified])
        self._verified = found


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
