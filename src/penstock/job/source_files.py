"""The files that a source keeps, on their way into the snapshots of its stage."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from penstock.checkpoint.metadata import SourceState
from penstock.connectors.kept_files import KeptFile, KeptFiles, copy_files, prove_files
from penstock.ids import OperatorUid
from penstock.savepoint.layout import operator_dir

_OF_SOURCE = "source"


class SourceFiles:
    """Proves what a checkpoint names, and gives a savepoint copies of its own.

    Called behind the barrier, by one thread.
    """

    def __init__(self, uid: OperatorUid, job: Path) -> None:
        self._job = job
        self._directory = f"{operator_dir(uid)}/{_OF_SOURCE}"
        self._proven: set[tuple[KeptFile, int]] = set()

    def keep(self, source: SourceState, savepoint: Path | None) -> SourceState:
        """Return the state of a source as a snapshot names it.

        Raises:
            CorruptStateError: a file is not what the source says of it.
        """
        kept = source.kept
        if kept is None:
            return source
        if savepoint is None:
            self._prove(kept)
            return replace(source, kept=KeptFiles(self._named(kept.directory), kept.files))
        copy_files(kept, savepoint / self._directory)
        return replace(source, kept=KeptFiles(self._directory, kept.files))

    def _named(self, directory: str) -> str:
        """Spell it from a checkpoint, where it is in the job's directory, which may be moved."""
        place = Path(directory)
        if not place.is_relative_to(self._job):
            return directory
        return str(Path(os.pardir, place.relative_to(self._job)))

    def _prove(self, kept: KeptFiles) -> None:
        """Read what the checkpoint before did not have: another name of a file is the same file."""
        directory = Path(kept.directory)
        found = {(file, _inode(directory / file.name)) for file in kept.files}
        prove_files(directory, [file for file, inode in found - self._proven])
        self._proven = found


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
