"""Writes completed checkpoints, enters them in the journal, retains and discards them."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock import __version__
from penstock.checkpoint.storage.committed_marker import mark_committed
from penstock.checkpoint.storage.job_dir import METADATA, JobDir, checkpoint_dir_name
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (
    CheckpointCompletedEntry,
    CheckpointDiscarded,
    CheckpointIdsReserved,
    CommitsDone,
    CommitsStarted,
)
from penstock.checkpoint.storage.metadata import (
    JOB_DIRECTORY,
    JOB_INSTANCE,
    LINEAGE,
    CheckpointMetadata,
    OperatorSnapshot,
    full_bytes,
    new_bytes,
)
from penstock.checkpoint.storage.metadata_serializer import decode_metadata, encode_metadata
from penstock.checkpoint.storage.pins import Pins
from penstock.errors import CorruptMetadataError
from penstock.ids import AttemptId, CheckpointId
from penstock.storage.storages import storage_at

logger = logging.getLogger("penstock.checkpoint")

_IDS_RESERVED_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A checkpoint or savepoint whose metadata is written."""

    checkpoint: CheckpointId
    path: str
    is_savepoint: bool
    crc: int
    triggered: float
    seconds: float
    new_bytes: int
    full_bytes: int

    def __str__(self) -> str:
        kind = "savepoint" if self.is_savepoint else "checkpoint"
        return (
            f"{kind} {self.checkpoint} completed in {self.seconds:.2f} s: "
            f"{self.new_bytes:,} bytes new, {self.full_bytes:,} in all"
        )


class CompletedCheckpointStore:
    """The completed checkpoints of a job, for an attempt that has won the journal.

    What decides whether a checkpoint can be restored goes through the journal first, and so fails
    in a driver that another one has fenced. The coordinator and the commit executor call from
    their threads.
    """

    def __init__(
        self,
        job_dir: JobDir,
        journal: Journal,
        attempt: AttemptId,
        job_name: str,
        retained: int,
        lineage: str,
        above: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the store; new ids are higher than all before and than `above`, the restored id."""
        self._dir = job_dir
        self._journal = journal
        self._attempt = attempt
        self._job_name = job_name
        self._max_retained = retained
        self._lineage = lineage
        self._job_instance = job_dir.job_instance()
        self._clock = clock
        self._lock = threading.RLock()
        state = journal.state()
        self._next = self._reserved = max(state.highest_id, above)
        # Not those that a fresh start or another snapshot has abandoned: only the user needs them.
        self._retained = [CheckpointId(c.checkpoint) for c in state.restorable if not c.savepoint]
        self._fallen_back = [CheckpointId(c.checkpoint) for c in state.fallen_back]
        own = (*state.restorable, *state.fallen_back)
        self._users = {c.checkpoint: c for c in state.completed if c not in own}
        """Savepoints, and checkpoints that the job has abandoned: they are deleted by users."""
        listed = {c.checkpoint for c in state.completed}
        self._pins_of_readers = Pins(job_dir, clock)
        known = {*listed, *state.named}
        self._pinned = [
            c for c in job_dir.checkpoints_on_disk() if c not in known and c <= state.highest_id
        ]
        """Discarded checkpoints that are still there, because readers have pinned them."""
        self._unlisted = [CheckpointId(n) for n in state.named if n not in listed]
        """Checkpoints that users have named, and that the journal does not list."""

    @property
    def retained(self) -> list[CheckpointId]:
        """The checkpoints that are retained, oldest first."""
        return list(self._retained)

    def next_id(self) -> CheckpointId:
        """Return an id that no checkpoint of this job ever had."""
        with self._lock:
            if self._next == self._reserved:
                # Before an id is used: after a crash the next attempt must not use it again.
                self._reserved += _IDS_RESERVED_AT_ONCE
                now = self._clock()
                self._journal.append(CheckpointIdsReserved(self._attempt, self._reserved, now))
            self._next += 1
            return CheckpointId(self._next)

    def write(
        self,
        checkpoint: CheckpointId,
        operators: list[OperatorSnapshot],
        triggered: float,
        savepoint_path: str | None = None,
    ) -> CompletedCheckpoint:
        """Write the metadata, the last file of a checkpoint, and read it back."""
        now = self._clock()
        is_savepoint = savepoint_path is not None
        metadata = CheckpointMetadata(
            job_id=self._dir.key,
            job_name=self._job_name,
            attempt=self._attempt,
            checkpoint=checkpoint,
            kind="savepoint" if is_savepoint else "checkpoint",
            triggered=triggered,
            completed=now,
            penstock_version=__version__,
            operators=operators,
            properties={
                LINEAGE: self._lineage,
                JOB_INSTANCE: self._job_instance,
                **({JOB_DIRECTORY: str(self._dir.path)} if is_savepoint else {}),
            },
        )
        data = encode_metadata(metadata)
        if is_savepoint:
            # The copy first: the job must keep what a savepoint needs before there is a savepoint.
            self._dir.storage.create(self._dir.savepoint_copy(checkpoint), data)
        place = self._dir.checkpoint_dir(checkpoint)
        if savepoint_path is not None:
            place = self._dir.from_journal_path(savepoint_path)
        path, storage = str(place), storage_at(place)
        storage.create(METADATA, data)
        read = storage.read(METADATA)
        if read != data or decode_metadata(read, path) != metadata:
            raise CorruptMetadataError(path, "it does not read back as it was written")
        return CompletedCheckpoint(
            checkpoint=checkpoint,
            path=path,
            is_savepoint=is_savepoint,
            crc=zlib.crc32(data),
            triggered=triggered,
            seconds=max(0.0, now - triggered),
            new_bytes=new_bytes(metadata) + len(data),
            full_bytes=full_bytes(metadata) + len(data),
        )

    def complete(self, completed: CompletedCheckpoint) -> None:
        """Enter a checkpoint in the journal: from then on it can be restored.

        Raises:
            FencedError: another driver has taken over; the checkpoint is not complete.
        """
        with self._lock:
            entry = CheckpointCompletedEntry(
                checkpoint=completed.checkpoint,
                attempt=self._attempt,
                path=self._dir.to_journal_path(completed.path),
                savepoint=completed.is_savepoint,
                metadata_crc=completed.crc,
                time=self._clock(),
            )
            self._journal.append(entry)
            if completed.is_savepoint:
                self._users[completed.checkpoint] = entry
            else:
                self._retained.append(completed.checkpoint)

    def discard_subsumed(self) -> list[CheckpointId]:
        """Discard what the newest checkpoint subsumes; return the ids.

        These are the oldest checkpoints beyond the number to retain, and those that the job fell
        back from. What a reader has pinned is discarded in the journal, and deleted and returned by
        a later call, when it is not pinned any more.
        """
        with self._lock:
            subsumed = [*self._fallen_back, *self._retained[: -self._max_retained]]
            self._fallen_back, self._retained = [], self._retained[-self._max_retained :]
            self._discard_in_journal(subsumed)
            # Not before: a reader that pins one of them now finds it discarded.
            candidates = [*self._pinned, *subsumed]
            pinned = self._pins(candidates)
            self._pinned = [checkpoint for checkpoint in candidates if checkpoint in pinned]
            gone = [checkpoint for checkpoint in candidates if checkpoint not in pinned]
            for checkpoint in gone:
                self._dir.delete_checkpoint(checkpoint)
            return gone

    def _pins(self, candidates: Collection[CheckpointId]) -> Collection[CheckpointId]:
        """Return which of some checkpoints readers have pinned; all, if that cannot be seen."""
        if not candidates:
            return ()
        try:
            return self._pins_of_readers.checkpoints()
        except OSError as error:
            logger.warning("Pins of readers cannot be read; nothing is deleted: %s", error)
            return candidates

    def discard_deleted(self) -> list[CheckpointId]:
        """Discard savepoints and abandoned checkpoints that users have deleted; return their ids.

        So the journal, and what sources and sinks keep for them, does not grow forever.
        """
        with self._lock:
            copies = set(self._dir.savepoints_on_disk()) if self._users else set()
            deleted = [
                CheckpointId(c.checkpoint)
                for c in self._users.values()
                if not (c.savepoint and c.checkpoint in copies) and self._is_deleted(c.path)
            ]
            for checkpoint in deleted:
                del self._users[checkpoint]
            gone = [n for n in self._unlisted if self._is_deleted(checkpoint_dir_name(n))]
            self._unlisted = [n for n in self._unlisted if n not in gone]
            deleted += gone
            self.discard(deleted)
            return deleted

    def _is_deleted(self, path: str) -> bool:
        try:
            return not self._dir.has_metadata(path)
        except OSError:
            return False  # it cannot be seen now

    def discard(self, checkpoints: list[CheckpointId]) -> None:
        """Delete checkpoints: first in the journal, then on disk.

        After a crash in between, the next attempt deletes what the journal does not know.
        """
        with self._lock:
            self._discard_in_journal(checkpoints)
            for checkpoint in checkpoints:
                self._dir.delete_checkpoint(checkpoint)

    def _discard_in_journal(self, checkpoints: list[CheckpointId]) -> None:
        for checkpoint in checkpoints:
            self._journal.append(CheckpointDiscarded(checkpoint, self._attempt, self._clock()))

    def discard_pending(self, checkpoint: CheckpointId) -> None:
        """Delete what was written for a checkpoint that will never be complete; may be repeated.

        A stage may still be writing; it causes another call when it is done.
        """
        with self._lock, contextlib.suppress(OSError):
            if checkpoint not in self._retained:
                self._dir.delete_checkpoint(checkpoint)

    def check_tail(self) -> None:
        """Make sure that no other driver has taken the job; see `Journal.check_tail`."""
        self._journal.check_tail()

    def commits_started(self, checkpoint: CheckpointId) -> None:
        """Enter in the journal that sinks may commit from now on."""
        self._journal.append(CommitsStarted(checkpoint, self._attempt, self._clock()))

    def commits_done(self, checkpoint: CheckpointId) -> None:
        """Enter in the journal that sinks have committed everything.

        If that is the savepoint of a stop, it is recorded next to the savepoint, too.
        """
        self._journal.append(CommitsDone(checkpoint, self._attempt, self._clock()))
        if not self._dir.storage.exists(self._dir.savepoint_copy(checkpoint)):
            return
        # The journal decides: the id may be that of another job's snapshot, which was restored.
        state = self._journal.state()
        found = state.find(checkpoint)
        if found is None or not found.savepoint or checkpoint not in state.commits_done:
            return
        try:
            mark_committed(self._dir.from_journal_path(found.path), found.metadata_crc)
        except OSError as error:
            message = "Savepoint %s cannot be marked as committed, only the journal says so: %s"
            logger.warning(message, found.path, error)
