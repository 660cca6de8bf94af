"""Opens a snapshot for reading, pinned so that its job deletes none of its files meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.checkpoint.storage.job_dir import METADATA, JobDir, is_job
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import CheckpointCompletedEntry
from penstock.checkpoint.storage.pins import PIN_SECONDS, Pin, pin_checkpoint
from penstock.common.storage_url import Location
from penstock.errors import (
    DisappearedSnapshotError,
    NoCheckpointError,
    NotASnapshotError,
    UnknownCheckpointError,
)
from penstock.ids import JobKey
from penstock.snapshots.stored_snapshot import StoredSnapshot, open_snapshot
from penstock.storage.storages import storage_at

logger = logging.getLogger("penstock.snapshots")

_TRIES = 5


@dataclass(frozen=True)
class PinnedSnapshot:
    """A snapshot and the pin on it; who reads for long calls `pin.renew()` now and then."""

    snapshot: StoredSnapshot
    pin: Pin | None
    """None if nothing deletes it but its user, or if the reader may not write to the job."""

    def release(self) -> None:
        """End the reading; may be repeated."""
        if self.pin is not None:
            self.pin.release()


@contextmanager
def reading(path: Location, checkpoint: int | None = None) -> Iterator[PinnedSnapshot]:
    """Open a snapshot for as long as the context lasts; see `open_pinned`."""
    found = open_pinned(path, checkpoint)
    try:
        yield found
    finally:
        found.release()


def open_pinned(
    path: Location, checkpoint: int | None = None, seconds: float = PIN_SECONDS
) -> PinnedSnapshot:
    """Open the snapshot at a path; of a job the newest completed checkpoint, or a given one.

    Raises:
        NotASnapshotError: there is neither a snapshot nor a job.
        NoCheckpointError, UnknownCheckpointError: the job has none, or not that one.
        DisappearedSnapshotError: it is discarded.
        CorruptMetadataError: the metadata is damaged.
    """
    directory = path.parent if path.name == METADATA else path
    if checkpoint is None and storage_at(directory).exists(METADATA):
        job = JobDir(directory.parent.parent, JobKey(directory.parent.name))
        number = job.checkpoint_at(directory.name) if is_job(job) else None
        snapshot = open_snapshot(directory)
        if number is None or snapshot.is_savepoint:
            return PinnedSnapshot(snapshot, None)
        return PinnedSnapshot(snapshot, _pin(job, number, seconds))
    job = JobDir(directory.parent, JobKey(directory.name))
    if not is_job(job):
        raise NotASnapshotError(str(path))
    return pinned_of_job(job, checkpoint, seconds)


def pinned_of_job(
    job: JobDir, checkpoint: int | None = None, seconds: float = PIN_SECONDS
) -> PinnedSnapshot:
    """Open the newest completed checkpoint of a job, or a given one that it retains.

    Raises:
        NoCheckpointError, UnknownCheckpointError: the job has none, or not that one.
        DisappearedSnapshotError: it is discarded all the time, before it can be pinned.
        CorruptMetadataError: the metadata is damaged.
    """
    for _ in range(_TRIES):
        entries = completed_checkpoints(job, checkpoint)
        for entry in entries:
            found = _opened(job, entry, seconds)
            if found is not None:
                return found
            if not entry.savepoint:
                break  # a newer one has subsumed it since the journal was read
        # Otherwise users have moved or deleted all savepoints.
    raise DisappearedSnapshotError(str(job.from_journal_path(entries[0].path)))


def _opened(job: JobDir, entry: CheckpointCompletedEntry, seconds: float) -> PinnedSnapshot | None:
    """Open and pin a snapshot; None if it is gone."""
    pin = None
    try:
        if not entry.savepoint:
            pin = _pin(job, entry.checkpoint, seconds)
        return PinnedSnapshot(open_snapshot(job.from_journal_path(entry.path)), pin)
    except (DisappearedSnapshotError, NotASnapshotError):
        if pin is not None:
            pin.release()
        return None
    except BaseException:
        if pin is not None:
            pin.release()
        raise


def _pin(job: JobDir, checkpoint: int, seconds: float) -> Pin | None:
    try:
        return pin_checkpoint(job, checkpoint, seconds)
    except OSError as error:
        logger.info("Checkpoint %s of %s cannot be pinned: %s", checkpoint, job.path, error)
        return None


def completed_checkpoints(
    job: JobDir, checkpoint: int | None = None
) -> list[CheckpointCompletedEntry]:
    """Return the snapshots of a job that may be read, the best one first; or that with an id.

    First come those that the job would resume from, then those that it has abandoned. There is at
    least one.

    Raises:
        NoCheckpointError, UnknownCheckpointError: the job has none, or not that one.
    """
    state = Journal(job.storage, job.key).state()
    if checkpoint is not None:
        found = state.find(checkpoint)
        if found is not None:
            return [found]
        known = tuple(entry.checkpoint for entry in state.completed)
        raise UnknownCheckpointError(job.key, checkpoint, known)
    abandoned = [entry for entry in state.completed if entry not in state.restorable]
    entries = [*reversed(state.restorable), *reversed(abandoned)]
    if not entries:
        raise NoCheckpointError(job.key)
    return entries
