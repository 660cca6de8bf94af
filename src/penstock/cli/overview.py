"""A job seen from outside: how it stands, read from its directory."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.checkpoint.history import CheckpointRecord, History, RecordStatus
from penstock.checkpoint.job_dir import JobDir
from penstock.checkpoint.journal import EndStatus, Journal, JournalState
from penstock.errors import CorruptJournalError
from penstock.recovery.lease import Alive, Free, Owner, Standing, standing

__all__ = ["JobOverview", "Status", "is_savepoint", "job_name", "overview", "status_of"]


class Status(StrEnum):
    """How a job stands, for those who look at its directory."""

    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    """Its driver has left and not ended it: started again, it goes on."""
    DIED = "DIED"
    """It was not ended, and its driver is dead or silent: started again, it goes on."""
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    DAMAGED = "DAMAGED"
    """Its journal cannot be read."""

    @property
    def is_over(self) -> bool:
        """Whether the job has come to an end that somebody wanted."""
        return self in (Status.FINISHED, Status.CANCELED, Status.STOPPED)


class DriverFacts(msgspec.Struct, frozen=True):
    """The process that drives the job, or did last."""

    host: str
    pid: int
    heard: float


class LastCheckpoint(msgspec.Struct, frozen=True):
    """The newest checkpoint that was completed, whether it is still there or not."""

    id: int
    completed: float
    new_bytes: int
    full_bytes: int


class JobOverview(msgspec.Struct, frozen=True):
    """One job in a checkpoint directory; times in seconds since the epoch."""

    id: str
    name: str
    status: Status
    path: str
    driver: DriverFacts | None
    attempts: int
    attempt: str | None
    """The newest one."""
    started: float | None
    """When that was."""
    last_checkpoint: LastCheckpoint | None


_ENDS = {
    EndStatus.FINISHED: Status.FINISHED,
    EndStatus.CANCELED: Status.CANCELED,
    EndStatus.STOPPED: Status.STOPPED,
    EndStatus.FAILED: Status.FAILED,
}


def status_of(state: JournalState | None, found: Standing) -> Status:
    """Decide how a job stands from its journal, None if it is damaged, and its driver's lease."""
    if isinstance(found, Alive):
        return Status.RUNNING
    if state is None:
        return Status.DAMAGED
    if state.ended is not None:
        return _ENDS[state.ended.status]
    return Status.SUSPENDED if isinstance(found, Free) else Status.DIED


def overview(job: JobDir, heartbeat_timeout_s: float, now: float) -> JobOverview:
    """Read how a job stands; what is damaged is left out."""
    found = standing(job, heartbeat_timeout_s, now)
    try:
        state = Journal(job.storage, job.key).state()
    except CorruptJournalError:
        state = None
    owner: Owner | None = getattr(found, "owner", None)
    last = None if state is None else state.last_attempt
    return JobOverview(
        id=job.key,
        name=job_name(job),
        status=status_of(state, found),
        path=str(job.path),
        driver=None if owner is None else DriverFacts(owner.host, owner.pid, owner.beat),
        attempts=0 if state is None else state.attempts_so_far,
        attempt=None if last is None else last.attempt,
        started=None if last is None else last.time,
        last_checkpoint=_last_checkpoint(History(job.storage)),
    )


def job_name(job: JobDir) -> str:
    """Return the name a job was given, its id if that is not known."""
    facts = job.read_facts()
    return job.key if facts is None else facts.name


def is_savepoint(record: CheckpointRecord) -> bool:
    """Whether a record is of a snapshot that belongs to the user."""
    if record.kind in ("savepoint", "stop"):
        return True
    # A drained job's last checkpoint is a savepoint if it lies where those do.
    return record.path is not None and not record.path.endswith(f"/chk-{record.id}")


def _last_checkpoint(history: History) -> LastCheckpoint | None:
    for record in reversed(history.checkpoints()):
        if record.status is RecordStatus.COMPLETED and not is_savepoint(record):
            completed = record.triggered + record.duration_s
            return LastCheckpoint(record.id, completed, record.new_bytes, record.full_bytes)
    return None
