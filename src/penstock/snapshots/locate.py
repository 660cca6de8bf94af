"""Finds the snapshot to read: a path may be that of a checkpoint, a savepoint or a job."""

from __future__ import annotations

from penstock.checkpoint.storage.job_dir import JobDir, is_job
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import CheckpointCompletedEntry
from penstock.common.storage_url import Location
from penstock.errors import (
    DisappearedSnapshotError,
    NoCheckpointError,
    NotASnapshotError,
    UnknownCheckpointError,
)
from penstock.ids import JobKey
from penstock.snapshots.stored_snapshot import METADATA, StoredSnapshot, open_snapshot
from penstock.storage.storages import storage_at

_TRIES = 5


def locate_snapshot(path: Location, checkpoint: int | None = None) -> StoredSnapshot:
    """Return the snapshot at a path; of a job the newest completed checkpoint, or a given one.

    Raises:
        NotASnapshotError: there is neither a snapshot nor a job.
        NoCheckpointError, UnknownCheckpointError: the job has none, or not that one.
        CorruptMetadataError: the metadata is damaged.
    """
    directory = path.parent if path.name == METADATA else path
    if checkpoint is None and storage_at(directory).exists(METADATA):
        return open_snapshot(directory)
    job = JobDir(directory.parent, JobKey(directory.name))
    if not is_job(job):
        raise NotASnapshotError(str(path))
    return snapshot_of_job(job, checkpoint)


def snapshot_of_job(job: JobDir, checkpoint: int | None = None) -> StoredSnapshot:
    """Return the newest completed checkpoint of a job, or a given one that it retains.

    Savepoints have to be named by their paths, unless `checkpoint` is the id of one.

    Raises:
        NoCheckpointError, UnknownCheckpointError: the job has none, or not that one.
        CorruptMetadataError: the metadata is damaged.
    """
    place: Location = job.path
    for _ in range(_TRIES):
        place = job.from_journal_path(completed_checkpoint(job, checkpoint).path)
        try:
            return open_snapshot(place)
        except NotASnapshotError:
            continue  # a newer one has subsumed it since the journal was read
    raise DisappearedSnapshotError(str(place))


def completed_checkpoint(job: JobDir, checkpoint: int | None = None) -> CheckpointCompletedEntry:
    """Return the newest completed checkpoint of a job, or the snapshot with an id.

    Raises:
        NoCheckpointError, UnknownCheckpointError: the job has none, or not that one.
    """
    state = Journal(job.storage, job.key).state()
    if checkpoint is not None:
        found = state.find(checkpoint)
        if found is not None:
            return found
        known = tuple(entry.checkpoint for entry in state.completed)
        raise UnknownCheckpointError(job.key, checkpoint, known)
    newest = next((entry for entry in reversed(state.completed) if not entry.savepoint), None)
    if newest is None:
        newest = next(reversed(state.completed), None)
    if newest is None:
        raise NoCheckpointError(job.key)
    return newest
