"""The snapshots of a job that somebody may go back to, and what they need."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.job_dir import METADATA, JobDir
from penstock.checkpoint.journal import CheckpointCompleted, Journal, JournalState
from penstock.checkpoint.metadata import LIFE, CheckpointMetadata, files_of
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.checkpoint.shared_files import sweep
from penstock.crash_points import CrashPoint, reach
from penstock.errors import CorruptMetadataError
from penstock.ids import is_no_later
from penstock.job.positions import RetainedPositions
from penstock.job.work_dirs import remove_dead_work_dirs
from penstock.task.layout import Layout

logger = logging.getLogger("penstock.job")

_GONE = (FileNotFoundError, NotADirectoryError)


class KeptSnapshots:
    """Checkpoints and savepoints that the journal knows; read anew with every call.

    If one of them cannot be read, nobody can say what it needs: then nothing is cleaned up.

    The driver may be taken over between reading the journal and deleting: only names go that a
    successor cannot have written, by the id or the attempt they carry.
    """

    def __init__(self, job_dir: JobDir, journal: Journal) -> None:
        self._dir = job_dir
        self._journal = journal

    def remove_leftovers(self, mine: Layout) -> None:
        """Remove what dead attempts left behind.

        Called by an attempt that has won the journal, before any of its tasks runs.
        """
        state = self._journal.state()
        kept = self._read_all(state)
        reach(CrashPoint.RECOVERY_BEFORE_CLEANUP)
        work_dirs = (Path(d) for attempt in state.attempts[-3:] for d in attempt.work_dirs)
        remove_dead_work_dirs(work_dirs, mine)
        self._remove_uncounted(state)
        self._sweep(state, kept)

    def remove_uncounted(self) -> None:
        """Remove what was written for checkpoints that never counted, or do not any more."""
        self._remove_uncounted(self._journal.state())

    def sweep(self) -> None:
        """Delete the state files that none of them needs; no task of the job may run."""
        state = self._journal.state()
        self._sweep(state, self._read_all(state))

    def forget_life(self, life: str) -> None:
        """Remove what connectors kept in a life that is over, unless a snapshot is of that life.

        Called once the life's checkpoints are discarded; may repeat, also in a later life.
        """
        state = self._journal.state()
        last = state.last_attempt
        if last is None or not is_no_later(life, last.attempt):
            return
        if last.life == life and not state.is_over:
            return
        kept = self._read_all(state)
        if kept is None or any(_life_of(metadata) == life for metadata in kept):
            return
        directory = self._dir.connectors(life)
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()

    def hold(self, files: FileKeeper) -> RetainedPositions:
        """Let every one of them hold its state files; return where sources stand in each."""
        positions = RetainedPositions()
        readable, unreadable = self._read(self._journal.state())
        for checkpoint in unreadable:
            # Nobody knows where sources stand in it: they keep everything.
            positions.keep(checkpoint, [])
        for metadata in readable:
            positions.keep(metadata.checkpoint, metadata.operators)
            if _is_own(metadata):
                paths = [self._dir.shared / name for name in files_of(metadata)]
                files.hold(f"chk-{metadata.checkpoint}", paths)
        return positions

    def uncommitted(self) -> tuple[int, int] | None:
        """Return the checkpoint that counts if it owes commits, and how many; else None."""
        state = self._journal.state()
        newest = state.restorable[-1] if state.restorable else None
        if newest is None or newest.checkpoint in state.commits_done:
            return None
        try:
            operators = self._metadata(newest).operators
        except (OSError, CorruptMetadataError):
            return newest.checkpoint, 0
        owed = sum(len(o.sink.committables) for o in operators if o.sink is not None)
        return (newest.checkpoint, owed) if owed else None

    def held_by_sinks(self, without: Collection[int] = ()) -> Mapping[str, list[bytes]] | None:
        """Return what sinks prepared and some snapshot names, by uid; None if that is unknown.

        Snapshots with ids in ``without`` are left out.
        """
        kept = self._read_all(self._journal.state())
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

    def _remove_uncounted(self, state: JournalState) -> None:
        """Remove what never won the journal, or was discarded there by a driver that then died."""
        counted = {c.checkpoint for c in state.completed}
        for checkpoint in self._dir.checkpoints_on_disk():
            if checkpoint not in counted and checkpoint <= state.highest_id:
                self._dir.storage.delete_tree(self._dir.chk(checkpoint).name)
        for checkpoint in self._dir.savepoints_on_disk():
            if checkpoint not in counted and checkpoint <= state.highest_id:
                self._dir.savepoint(checkpoint).unlink(missing_ok=True)

    def _sweep(self, state: JournalState, kept: list[CheckpointMetadata] | None) -> None:
        if kept is None or state.last_attempt is None or not self._dir.shared.is_dir():
            return
        needed = {self._dir.shared / name for m in kept if _is_own(m) for name in files_of(m)}
        sweep(self._dir.shared, needed, state.last_attempt.attempt)
        with contextlib.suppress(OSError):
            self._dir.shared.rmdir()

    def _read_all(self, state: JournalState) -> list[CheckpointMetadata] | None:
        readable, unreadable = self._read(state)
        if not unreadable:
            return readable
        logger.warning("nothing is cleaned up: nobody knows what snapshots %s need", unreadable)
        return None

    def _read(self, state: JournalState) -> tuple[list[CheckpointMetadata], list[int]]:
        """Return the snapshots that can be read, and the ids of those that cannot."""
        readable: list[CheckpointMetadata] = []
        unreadable: list[int] = []
        for completed in state.completed:
            try:
                readable.append(self._metadata(completed))
            except (OSError, CorruptMetadataError) as error:
                if completed.savepoint and isinstance(error, _GONE):
                    continue  # its owner has disposed of it
                logger.warning("snapshot %s cannot be read: %s", completed.path, error)
                # The job has gone back behind a damaged checkpoint: nobody will ask for it.
                if completed.savepoint or completed in state.restorable:
                    unreadable.append(completed.checkpoint)
        return readable, unreadable

    def _metadata(self, completed: CheckpointCompleted) -> CheckpointMetadata:
        file = self._dir.located(completed.path) / METADATA
        copy = self._dir.savepoint(completed.checkpoint)
        if completed.savepoint and copy.exists():
            file = copy
        return decode_metadata(file.read_bytes(), str(file))


def _is_own(metadata: CheckpointMetadata) -> bool:
    return metadata.kind != "savepoint"


def _life_of(metadata: CheckpointMetadata) -> str:
    return metadata.properties.get(LIFE, metadata.attempt)
