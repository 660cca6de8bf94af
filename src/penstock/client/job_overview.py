"""Reads the status of a job from its directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, History
from penstock.checkpoint.storage.job_dir import JobDir, checkpoint_dir_name
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.common.job_status import JobStatus
from penstock.errors import CorruptJournalError
from penstock.recovery.lease import Alive, DriverStatus, Free, Owner, driver_status, read_owner


class DriverFacts(msgspec.Struct, frozen=True):
    """The process that runs the job, or ran it last."""

    host: str
    pid: int
    heard: float


class LastCheckpoint(msgspec.Struct, frozen=True):
    """The newest completed checkpoint that exists; if there is none, the newest discarded one."""

    id: int
    completed: float
    new_bytes: int
    full_bytes: int
    discarded: bool = False
    """Whether it is deleted: there is nothing to restore."""


class ShownCheckpoint(CheckpointStats, frozen=True):
    """Statistics of a checkpoint or savepoint, and whether it still exists."""

    discarded: bool = False
    """Whether it was completed, and nothing is at its path any more."""

    @classmethod
    def of(cls, record: CheckpointStats, job: JobDir) -> ShownCheckpoint:
        """Look whether a snapshot still exists; a checkpoint moves with the job's directory."""
        path = record.path
        if path is not None and not is_savepoint(record):
            path = str(job.checkpoint_dir(record.id))
        discarded = record.status is CheckpointStatus.COMPLETED and _is_gone(job, path)
        return cls(**{**msgspec.structs.asdict(record), "path": path}, discarded=discarded)


class JobOverview(msgspec.Struct, frozen=True):
    """One job in a checkpoint directory; times in seconds since the epoch."""

    id: str
    name: str
    status: str
    """The result of `displayed_status`."""
    path: str
    driver: DriverFacts | None
    attempts: int
    attempt: str | None
    """The newest attempt."""
    started: float | None
    """When the newest attempt started."""
    last_checkpoint: LastCheckpoint | None
    unreadable: list[str] = []
    """The files in the job's directory, and lines in them, that are left out: they are damaged."""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, and not by a failure."""
        return self.status in ("FINISHED", "CANCELED", "STOPPED")


def with_ended_attempt(record: ShownCheckpoint, job: JobOverview, now: float) -> ShownCheckpoint:
    """Return a pending record as failed if its attempt has ended; others as they are."""
    if record.status is not CheckpointStatus.PENDING:
        return record
    if job.status == JobStatus.RUNNING.name and record.attempt == job.attempt:
        return msgspec.structs.replace(record, duration_s=max(0.0, now - record.triggered))
    failure = f"attempt {record.attempt} ended before the checkpoint was complete"
    return msgspec.structs.replace(record, status=CheckpointStatus.FAILED, failure=failure)


def status_of(state: JournalState | None, driver: DriverStatus) -> JobStatus | None:
    """Decide the status of a job from its journal, None if that is damaged, and its lease.

    A job that was not ended and that no driver runs is SUSPENDED: started again, it resumes.
    """
    if isinstance(driver, Alive):
        return JobStatus.INITIALIZING if driver.owner.initializing else JobStatus.RUNNING
    if state is None:
        return None
    return JobStatus.SUSPENDED if state.ended is None else state.ended.status


def displayed_status(state: JournalState | None, driver: DriverStatus) -> str:
    """Return the status that commands print, with what matters to users beyond `JobStatus`.

    DIED: suspended, because the driver is dead or silent. STOPPED: finished, with a savepoint.
    DAMAGED: the journal cannot be read.
    """
    status = status_of(state, driver)
    if status is None:
        return "DAMAGED"
    if status is JobStatus.SUSPENDED and not isinstance(driver, Free):
        return "DIED"
    ended = None if state is None else state.ended
    if status is JobStatus.FINISHED and ended is not None and ended.savepoint is not None:
        return "STOPPED"
    return status.name


def overview(job: JobDir, heartbeat_timeout_s: float, now: float) -> JobOverview:
    """Read the status of a job; without the parts that are damaged."""
    driver = driver_status(job, heartbeat_timeout_s, now)
    try:
        state = Journal(job.storage, job.key).state()
    except CorruptJournalError:
        state = None
    history = History(job.storage)
    last_checkpoint = last_checkpoint_of(reversed(history.checkpoints()), job)
    return overview_of(
        job, job_name(job), state, driver, last_checkpoint, _unreadable(job, history)
    )


def overview_of(
    job: JobDir,
    name: str,
    state: JournalState | None,
    driver: DriverStatus,
    last_checkpoint: LastCheckpoint | None,
    unreadable: list[str],
) -> JobOverview:
    """Return the status of a job from what was read of it; `state` is None if it is damaged."""
    owner: Owner | None = getattr(driver, "owner", None)
    last = None if state is None else state.last_attempt
    return JobOverview(
        id=job.key,
        name=name,
        status=displayed_status(state, driver),
        path=str(job.path),
        driver=None if owner is None else DriverFacts(owner.host, owner.pid, owner.beat),
        attempts=0 if state is None else state.attempts_so_far,
        attempt=None if last is None else last.attempt,
        started=None if last is None else last.time,
        last_checkpoint=last_checkpoint,
        unreadable=unreadable,
    )


def job_name(job: JobDir) -> str:
    """Return the name of a job, or its id if the name is not known."""
    facts = job.read_facts()
    return job.key if facts is None else facts.name


def _unreadable(job: JobDir, history: History) -> list[str]:
    damaged = set(history.unreadable)
    if job.storage.exists(job.job.name) and job.read_facts() is None:
        damaged.add(job.job.name)
    lease = job.driver.name
    if job.storage.exists(lease) and read_owner(job) is None and job.storage.exists(lease):
        damaged.add(lease)
    return sorted(damaged)


def is_savepoint(record: CheckpointStats) -> bool:
    """Whether a snapshot is a savepoint, which belongs to the user."""
    if record.kind in ("savepoint", "stop"):
        return True
    # The last checkpoint of a drained job is a savepoint unless it is in a checkpoint's directory.
    name = checkpoint_dir_name(record.id)
    return record.path is not None and PurePosixPath(record.path).name != name


def _is_gone(job: JobDir, path: str | None) -> bool:
    try:
        return path is None or not job.has_metadata(path)
    except (OSError, ValueError):
        return False  # it cannot be seen now, or the record is damaged


def last_checkpoint_of(
    newest_first: Iterable[CheckpointStats], job: JobDir
) -> LastCheckpoint | None:
    """Return the newest completed checkpoint; reads no more records than necessary."""
    newest = None
    for record in newest_first:
        if record.status is CheckpointStatus.COMPLETED and not is_savepoint(record):
            discarded = ShownCheckpoint.of(record, job).discarded
            completed = record.triggered + record.duration_s
            found = LastCheckpoint(
                record.id, completed, record.new_bytes, record.full_bytes, discarded
            )
            if not discarded:
                return found
            newest = newest or found
    return newest
