"""The checkpoints and savepoints a job can be restored from, and cleanup of everything else."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from penstock.checkpoint.shared_state_registry import SharedStateRegistry, sweep
from penstock.checkpoint.storage.job_dir import METADATA, JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import CheckpointCompletedEntry, JournalState
from penstock.checkpoint.storage.metadata import (
    LINEAGE,
    CheckpointMetadata,
    OperatorSnapshot,
    SourceState,
    files_of,
)
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.checkpoint.storage.pins import Pins
from penstock.common.storage_url import Location
from penstock.crash_points import CrashPoint, reach
from penstock.errors import CorruptMetadataError
from penstock.ids import CheckpointId, is_no_later
from penstock.job.restore.unfinished_uploads import remove_unfinished_uploads
from penstock.job.restore.work_dirs import remove_dead_work_dirs
from penstock.storage.storages import storage_at
from penstock.task.layout import AttemptLayout

logger = logging.getLogger("penstock.job")

_GONE = (FileNotFoundError, NotADirectoryError)

Positions = Mapping[str, int]
SourcePositions = dict[str, Positions | None]
"""By source uid; None if a snapshot holds the source's files itself."""


class RetainedPositions:
    """The source positions in every retained snapshot; below the lowest no record is needed.

    Filled before the coordinator starts, then used by the coordinator's thread only.
    """

    def __init__(self) -> None:
        self._retained: dict[int, SourcePositions] = {}
        """By checkpoint."""
        self._savepoints: SourcePositions | None = None
        """The lowest of all savepoints, which are never forgotten; None if there are none."""

    def keep(
        self,
        checkpoint: CheckpointId | int,
        operators: Iterable[OperatorSnapshot],
        *,
        savepoint: bool = False,
    ) -> None:
        """Add a snapshot."""
        positions = {o.uid: _needed(o.source) for o in operators if o.source is not None}
        if not savepoint:
            self._retained[checkpoint] = positions
        elif self._savepoints is None:
            self._savepoints = positions
        else:
            both = [self._savepoints, positions]
            self._savepoints = {uid: _lowest(uid, both) for uid in {**both[0], **both[1]}}

    def forget(self, checkpoints: Iterable[CheckpointId | int]) -> None:
        """Remove discarded checkpoints."""
        for checkpoint in checkpoints:
            self._retained.pop(checkpoint, None)

    def lowest(self, uid: str) -> dict[str, int]:
        """Return, per split of a source, the lowest position that a snapshot may read from."""
        savepoints = [] if self._savepoints is None else [self._savepoints]
        return dict(_lowest(uid, [*self._retained.values(), *savepoints]) or {})


class RetainedSnapshots:
    """The snapshots that the journal lists; read again with every call.

    If one of them cannot be read, the files it needs are unknown, and nothing is cleaned up.

    Another driver may take over between reading the journal and deleting. So only files are deleted
    that a successor cannot have written, by the checkpoint id or attempt in their names.
    """

    def __init__(self, job_dir: JobDir, journal: Journal) -> None:
        self._dir = job_dir
        self._journal = journal

    def remove_leftovers(self, mine: AttemptLayout) -> None:
        """Remove files of dead attempts.

        Called by an attempt that has won the journal, before any of its tasks runs.
        """
        state, pinned = self._journal.state(), self._pinned()
        kept = None if pinned is None else self._read_all(state, pinned)
        reach(CrashPoint.RECOVERY_BEFORE_CLEANUP)
        work_dirs = (Path(d) for attempt in state.attempts[-3:] for d in attempt.work_dirs)
        remove_dead_work_dirs(work_dirs, mine)
        if pinned is not None:
            self._remove_uncompleted(state, pinned)
            self._sweep(state, kept)
        remove_unfinished_uploads(self._dir, self._journal, state)

    def clean_up(self) -> None:
        """Remove uncompleted and discarded checkpoints, and all state files that no snapshot needs.

        No task of the job may be running. It is its end: pins of readers do not count.
        """
        state = self._journal.state()
        self._remove_uncompleted(state)
        self._sweep(state, self._read_all(state))
        remove_unfinished_uploads(self._dir, self._journal, state)

    def forget_lineage(self, lineage: str) -> None:
        """Remove connector files of a lineage that has ended, unless a snapshot belongs to it.

        Called after its checkpoints are discarded; may be repeated, also in a later lineage.
        """
        state = self._journal.state()
        last = state.last_attempt
        if last is None or not is_no_later(lineage, last.attempt):
            return
        if last.lineage == lineage and not state.is_over:
            return
        kept = self._read_all(state)
        if kept is None or any(_lineage_of(metadata) == lineage for metadata in kept):
            return
        directory = self._dir.connectors(lineage)
        with contextlib.suppress(OSError):
            storage_at(directory).delete_tree("")
        if isinstance(directory, Path):
            with contextlib.suppress(OSError):
                directory.parent.rmdir()

    def register(self, registry: SharedStateRegistry) -> RetainedPositions:
        """Register the state files of every snapshot; return where sources stand in each."""
        positions = RetainedPositions()
        # Those that are still there although they are discarded: readers have pinned them.
        there = frozenset(self._dir.checkpoints_on_disk())
        readable, unreadable = self._read(self._journal.state(), there)
        for checkpoint in unreadable:
            # Its source positions are unknown: sources keep everything.
            positions.keep(checkpoint, [])
        for metadata in readable:
            is_savepoint = not _is_own(metadata)
            positions.keep(metadata.checkpoint, metadata.operators, savepoint=is_savepoint)
            if _is_own(metadata):
                paths = [self._dir.shared / name for name in files_of(metadata)]
                registry.register_checkpoint(CheckpointId(metadata.checkpoint), paths)
        return positions

    def named_by_user(self, state: JournalState) -> frozenset[CheckpointId]:
        """Return the checkpoints of this job that a user has named to start from.

        They belong to the user from then on, even those that were never completed or that an
        earlier run has discarded without deleting their files.
        """
        named = (self._dir.checkpoint_at(path) for path in state.named_by_user)
        return frozenset([*map(CheckpointId, state.named), *(c for c in named if c is not None)])

    def uncommitted(self) -> tuple[int, int] | None:
        """Return the newest checkpoint and its number of uncommitted committables, None if none.

        Not those of sinks that the program has left out: the user has dropped them.
        """
        state = self._journal.state()
        newest = state.restorable[-1] if state.restorable else None
        if newest is None or newest.checkpoint in state.commits_done:
            return None
        try:
            operators = self._metadata(newest).operators
        except (OSError, CorruptMetadataError):
            return newest.checkpoint, 0
        committed, last = state.committed_output(newest.attempt), state.last_attempt
        dropped = () if last is None else last.left_out
        count = sum(len(committed.pending(o)) for o in operators if o.uid not in dropped)
        return (newest.checkpoint, count) if count else None

    def referenced_by_sinks(
        self, without: Collection[int] = ()
    ) -> Mapping[str, list[bytes]] | None:
        """Return sink state and committables in snapshots, by uid; None if that is unknown.

        Snapshots with ids in `without` are left out.
        """
        kept = self._read_all(self._journal.state())
        if kept is None:
            return None
        referenced: dict[str, list[bytes]] = {}
        for metadata in kept:
            operators = [] if metadata.checkpoint in without else metadata.operators
            for operator in operators:
                if operator.sink is not None:
                    mine = referenced.setdefault(operator.uid, [])
                    mine += [*operator.sink.state, *(c.data for c in operator.sink.committables)]
        return referenced

    def is_disposed(self, savepoint: int) -> bool:
        """Whether the user has disposed a savepoint: the job's copy of its metadata is gone."""
        try:
            return not self._dir.storage.exists(self._dir.savepoint_copy(savepoint))
        except OSError:
            return False

    def _pinned(self) -> frozenset[CheckpointId] | None:
        """Return the checkpoints that readers have pinned; None if that cannot be seen."""
        try:
            return Pins(self._dir).checkpoints()
        except OSError as error:
            logger.warning("Files are not cleaned up: pins of readers cannot be read: %s", error)
            return None

    def _remove_uncompleted(
        self, state: JournalState, pinned: frozenset[CheckpointId] = frozenset()
    ) -> None:
        """Remove what never won the journal, or was discarded there by a driver that then died.

        What readers have pinned stays.
        """
        completed = {c.checkpoint for c in state.completed}
        known = completed | self.named_by_user(state) | pinned
        for checkpoint in self._dir.checkpoints_on_disk():
            if checkpoint not in known and checkpoint <= state.highest_id:
                self._dir.delete_checkpoint(checkpoint)
        for checkpoint in self._dir.savepoints_on_disk():
            if checkpoint not in completed and checkpoint <= state.highest_id:
                self._dir.storage.delete(self._dir.savepoint_copy(checkpoint))

    def _sweep(self, state: JournalState, kept: list[CheckpointMetadata] | None) -> None:
        if kept is None or state.last_attempt is None:
            return
        needed = {name for metadata in kept if _is_own(metadata) for name in files_of(metadata)}
        sweep(self._dir.shared, needed, state.last_attempt.attempt)

    def _read_all(
        self, state: JournalState, pinned: frozenset[CheckpointId] = frozenset()
    ) -> list[CheckpointMetadata] | None:
        readable, unreadable = self._read(state, pinned)
        if not unreadable:
            return readable
        logger.warning("Files are not cleaned up: snapshots %s cannot be read", unreadable)
        return None

    def _read(
        self, state: JournalState, pinned: frozenset[CheckpointId]
    ) -> tuple[list[CheckpointMetadata], list[int]]:
        """Return the snapshots that can be read, and the ids of those that cannot."""
        readable: list[CheckpointMetadata] = []
        unreadable: list[int] = []
        for completed in state.completed:
            try:
                readable.append(self._metadata(completed))
            except (OSError, CorruptMetadataError) as error:
                if completed.savepoint and isinstance(error, _GONE):
                    continue  # its owner has deleted it
                logger.warning("Snapshot %s cannot be read: %s", completed.path, error)
                # A damaged checkpoint that the job fell back from is not needed. One that cannot
                # be read just now may be, also if the job has abandoned it.
                is_damaged = isinstance(error, (CorruptMetadataError, *_GONE))
                if not is_damaged or completed.savepoint or completed in state.restorable:
                    unreadable.append(completed.checkpoint)
        completed_ids = {c.checkpoint for c in state.completed}
        for checkpoint in (self.named_by_user(state) | pinned) - completed_ids:
            try:
                readable.append(self._read_metadata(self._dir.checkpoint_dir(checkpoint)))
            except (CorruptMetadataError, *_GONE):
                continue  # it needs no files, or is deleted
            except OSError as error:
                logger.warning("Checkpoint %s cannot be read: %s", checkpoint, error)
                unreadable.append(checkpoint)
        return readable, unreadable

    def _metadata(self, completed: CheckpointCompletedEntry) -> CheckpointMetadata:
        if completed.savepoint:
            copy = self._dir.savepoint_copy(completed.checkpoint)
            with contextlib.suppress(FileNotFoundError):
                data = self._dir.storage.read(copy)
                return decode_metadata(data, self._dir.storage.location(copy))
        return self._read_metadata(self._dir.from_journal_path(completed.path))

    @staticmethod
    def _read_metadata(directory: Location) -> CheckpointMetadata:
        return decode_metadata(storage_at(directory).read(METADATA), str(directory / METADATA))


def _is_own(metadata: CheckpointMetadata) -> bool:
    return metadata.kind != "savepoint"


def _lineage_of(metadata: CheckpointMetadata) -> str:
    return metadata.properties.get(LINEAGE, metadata.attempt)


def _lowest(uid: str, snapshots: Iterable[SourcePositions]) -> Positions | None:
    """Return the lowest positions of a source in any of some snapshots; None if none needs it."""
    found = [positions.get(uid, {}) for positions in snapshots]
    needed = [positions for positions in found if positions is not None]
    if not needed:
        return None
    # A snapshot without a split was taken before any of it was read.
    splits = set.intersection(*(set(positions) for positions in needed))
    return {split: min(positions[split] for positions in needed) for split in splits}


def _needed(source: SourceState) -> Positions | None:
    is_alone = source.files is not None and source.files.is_in_snapshot
    return None if is_alone else source.positions
