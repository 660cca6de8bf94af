"""The snapshots of a job that somebody may go back to, and what they need."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.job_dir import METADATA, JobDir
from penstock.checkpoint.journal import Journal
from penstock.checkpoint.metadata import CheckpointMetadata, files_of
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.checkpoint.shared_files import sweep
from penstock.errors import CorruptMetadataError
from penstock.job.positions import RetainedPositions
from penstock.task.layout import Layout

logger = logging.getLogger("penstock.job")


class KeptSnapshots:
    """Checkpoints and savepoints that the journal knows; read anew with every call.

    If one of them cannot be read, nobody can say what it needs: then nothing is cleaned up.
    """

    def __init__(self, job_dir: JobDir, journal: Journal) -> None:
        self._dir = job_dir
        self._journal = journal

    def remove_leftovers(self, mine: Layout) -> None:
        """Remove what dead attempts left behind.

        Called by an attempt that has won the journal, before any of its tasks runs.
        """
        state = self._journal.state()
        for attempt in state.attempts[-3:]:
            for directory in map(Path, attempt.work_dirs):
                ours = directory in (mine.shared, mine.local)
                if directory.name.startswith("penstock-") and not ours:
                    shutil.rmtree(directory, ignore_errors=True)
        for directory in mine.local.glob("*"):
            if directory != mine.local_root:
                shutil.rmtree(directory, ignore_errors=True)
        counted = {c.checkpoint for c in state.completed}
        for checkpoint in self._dir.checkpoints_on_disk():
            if checkpoint not in counted:
                # Never won the journal, or was discarded there by a driver that then died.
                self._dir.storage.delete_tree(self._dir.chk(checkpoint).name)
        self.sweep()

    def sweep(self) -> None:
        """Delete the state files that none of them needs; no task of the job may run."""
        kept = self._read_all()
        if kept is not None and self._dir.shared.is_dir():
            sweep(
                self._dir.shared,
                {self._dir.shared / name for m in kept if _is_own(m) for name in files_of(m)},
            )
            with contextlib.suppress(OSError):
                self._dir.shared.rmdir()

    def hold(self, files: FileKeeper) -> RetainedPositions:
        """Let every one of them hold its state files; return where sources stand in each."""
        positions = RetainedPositions()
        readable, unreadable = self._read()
        for checkpoint in unreadable:
            # Nobody knows where sources stand in it: they keep everything.
            positions.keep(checkpoint, [])
        for metadata in readable:
            positions.keep(metadata.checkpoint, metadata.operators)
            if _is_own(metadata):
                paths = [self._dir.shared / name for name in files_of(metadata)]
                files.hold(f"chk-{metadata.checkpoint}", paths)
        return positions

    def held_by_sinks(self, without: Collection[int] = ()) -> Mapping[str, list[bytes]] | None:
        """Return what sinks prepared and some snapshot names, by uid; None if that is unknown.

        Snapshots with ids in ``without`` are left out.
        """
        kept = self._read_all()
        if kept is None:
            return None
        held: dict[str, list[bytes]] = {}
        for metadata in kept:
            operators = [] if metadata.checkpoint in without else metadata.operators
            for operator in operators:
                if operator.sink is not None:
                    mine = held.setdefault(operator.uid, [])
                    mine += [*operator.sink.state, *(c.data for c in operator.sink.committables)]
        return held

    def _read_all(self) -> list[CheckpointMetadata] | None:
        readable, unreadable = self._read()
        if not unreadable:
            return readable
        logger.warning("nothing is cleaned up: nobody knows what snapshots %s need", unreadable)
        return None

    def _read(self) -> tuple[list[CheckpointMetadata], list[int]]:
        """Return the snapshots that can be read, and the ids of those that cannot."""
        readable: list[CheckpointMetadata] = []
        unreadable: list[int] = []
        state = self._journal.state()
        for completed in state.completed:
            path = self._dir.located(completed.path) / METADATA
            if completed.savepoint and not path.exists():
                continue  # its owner has moved or deleted it
            try:
                readable.append(decode_metadata(path.read_bytes(), str(path)))
            except (OSError, CorruptMetadataError) as error:
                logger.warning("snapshot %s cannot be read: %s", path.parent, error)
                # The job has gone back behind a damaged checkpoint: nobody will ask for it.
                if completed.savepoint or completed in state.restorable:
                    unreadable.append(completed.checkpoint)
        return readable, unreadable


def _is_own(metadata: CheckpointMetadata) -> bool:
    return metadata.kind != "savepoint"
