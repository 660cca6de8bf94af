"""The entries of a job's journal, and the state that `journal_state` computes from them.

These structs are a file format: tags and field names are persisted.
"""

from __future__ import annotations

from typing import Literal, cast

from msgspec import Struct, field

from penstock.checkpoint.storage.committed_output import CommittedOutput
from penstock.common.job_status import JobStatus
from penstock.ids import AttemptId

_STOPPED = "STOPPED"
RecordedStatus = Literal["FINISHED", "CANCELED", "FAILED", "STOPPED"]
"""How journals spell the end of a job; STOPPED is FINISHED with a savepoint."""


class AttemptStarted(Struct, frozen=True, tag=True):
    """A driver takes over the job; only it writes, until the next such entry.

    `restored` and `restored_path` are the id and path of the snapshot it starts from, for a
    checkpoint of this job as its `CheckpointCompletedEntry` has them. `given_path` is the snapshot
    that the user named, whether it starts from that or not. `fresh` says that it must start
    from nothing even if there are checkpoints.
    """

    attempt: str
    time: float
    host: str
    pid: int
    restored: int | None = None
    restored_path: str | None = None
    given_path: str | None = None
    fresh: bool = False
    lineage: str = field(default="", name="life")
    """The restore lineage: the attempt with which the job last started from nothing."""
    work_dirs: list[str] = []
    """Directories outside of the job's directory that later attempts have to clean up."""
    restored_crc: int | None = None
    """The checksum of the metadata of the snapshot it starts from."""
    claims: bool = False
    """Whether the job owns that snapshot, and deletes it when it has a checkpoint of its own."""
    left_out: list[str] = []
    """Uids of sinks with pending output in that snapshot that the program no longer has."""


class StartFailed(Struct, frozen=True, tag=True):
    """The attempt failed before it ran: everything is as before it, only its id is used up.

    It changes nothing once commits have started: then the job does not return to what the attempt
    abandoned, unless the user says so. A driver that is killed while it starts does not write this
    entry; the next attempt starts from the same snapshot.
    """

    attempt: str
    time: float


class CheckpointIdsReserved(Struct, frozen=True, tag=True):
    """Ids up to this one may have been used; the next attempt uses higher ones."""

    attempt: str
    upto: int
    time: float


class CheckpointCompletedEntry(Struct, frozen=True, tag="CheckpointCompleted"):
    """Journal entry: a checkpoint is complete; its metadata was written and read back before."""

    checkpoint: int
    attempt: str
    path: str
    """As `JobDir.to_journal_path` returns it."""
    savepoint: bool
    metadata_crc: int
    time: float


CompletedEntries = tuple[CheckpointCompletedEntry, ...]


class _OfCheckpoint(Struct, frozen=True, tag=True):
    checkpoint: int
    attempt: str
    time: float


class CommitsStarted(_OfCheckpoint, frozen=True):
    """Sinks may commit output of a checkpoint; restoring an older one may duplicate it."""


class CommitsDone(_OfCheckpoint, frozen=True):
    """Sinks have committed everything up to a checkpoint.

    If that is the one that the attempt was started from: except for the sinks that it left out.
    """


class CheckpointDiscarded(_OfCheckpoint, frozen=True):
    """A checkpoint must not be restored any more; its files are deleted next."""


class DriverProcess(Struct, frozen=True):
    """The process that ended a job and has to report that."""

    host: str
    machine: str
    pid: int
    started: int
    """As in the lease: together they identify a process."""
    command: str
    """A digest of the program and its arguments."""
    execution: int = 1
    """How many executions of this job the program had started: it may run a job repeatedly."""


class ClaimedDiscarded(Struct, frozen=True, tag=True):
    """The snapshot at this path, which the job had claimed, is deleted."""

    attempt: str
    path: str
    time: float


class JobEnded(Struct, frozen=True, tag=True):
    """The job is over; only a new attempt, started by the user, changes that.

    Its result is dirty until a process has reported it and exited normally, as in Flink's
    `JobResultStore`.
    """

    attempt: str
    recorded_status: RecordedStatus = field(name="status")
    time: float
    savepoint: str | None = None
    """The savepoint the job was stopped with."""
    retained: bool | None = None
    """Whether its checkpoints stay, as its own settings say; None in journals without this."""
    driver: DriverProcess | None = None
    """The process that has to report the end; None if the result is clean."""

    @classmethod
    def of(
        cls,
        attempt: str,
        status: JobStatus,
        time: float,
        savepoint: str | None = None,
        *,
        retained: bool | None = None,
        driver: DriverProcess | None = None,
    ) -> JobEnded:
        """Return the entry of a job that ended with a status."""
        name = status.name if savepoint is None else _STOPPED
        return cls(attempt, cast("RecordedStatus", name), time, savepoint, retained, driver)

    @property
    def status(self) -> JobStatus:
        """How the job ended; a job that was stopped with a savepoint has finished, as in Flink."""
        is_stopped = self.recorded_status == _STOPPED
        return JobStatus.FINISHED if is_stopped else JobStatus[self.recorded_status]

    @property
    def retains_checkpoints(self) -> bool:
        """Whether no later start may delete the checkpoints.

        If the entry does not say so, a canceled job may have retained them; a finished one did not.
        """
        return self.status is not JobStatus.FINISHED if self.retained is None else self.retained


class ResultClean(Struct, frozen=True, tag=True):
    """The end of the job was reported: the same command starts the job again."""

    attempt: str
    time: float


class ClaimedSnapshot(Struct, frozen=True):
    """A snapshot that the job has claimed and not deleted yet, identified by its metadata."""

    path: str
    metadata_crc: int


class BeforeStart(Struct, frozen=True):
    """The state that an attempt found when it started."""

    restorable: CompletedEntries = ()
    ended: JobEnded | None = None
    fallen_back: CompletedEntries = ()
    claimed: ClaimedSnapshot | None = None


class JournalState(Struct, frozen=True):
    """The state of a job according to all entries of its journal."""

    tail: int = 0
    """Index of the last entry."""
    attempts_so_far: int = 0
    attempts: tuple[AttemptStarted, ...] = ()
    """The newest hundred, newest last."""
    highest_id: int = 0
    """No checkpoint id up to this one may be used again."""
    completed: CompletedEntries = ()
    """All that were not discarded, savepoints too, newest last."""
    restorable: CompletedEntries = ()
    """Those of `completed` that a new attempt may restore by itself, newest last.

    Not savepoints, unless the job was to stop with one and has started to commit; nor checkpoints
    that the job has abandoned by starting fresh, by restoring another snapshot or an older
    checkpoint. If there are none, a new attempt starts from what the last one started from.
    """
    commits_started: frozenset[int] = frozenset()
    """Of snapshots in `completed`, and of the newest one that was discarded or not owned."""
    commits_done: frozenset[int] = frozenset()
    """Not those with output of sinks that were left out."""
    committed: dict[str, int] = {}
    """By attempt, the highest id of the snapshots it took whose commits are done.

    It stays when that snapshot is discarded: the next one may hold the same output, if it completed
    before the commits were done. Of the attempts that took a snapshot in `completed`; journals of
    older versions do not have it.
    """
    committed_crc: int | None = None
    """Identifies the last snapshot that was not the job's own and whose output it has committed."""
    committed_crc_without: tuple[str, ...] = ()
    """Uids of sinks whose output in that snapshot was left out."""
    left_out: dict[str, dict[str, int]] = {}
    """Exceptions from `committed`, by attempt and uid: sinks that were left out since then.

    The ids up to which their output is committed. It is pending until a program has them again.
    """
    fallen_back: CompletedEntries = ()
    """Checkpoints that the job fell back from, to be discarded with its next checkpoint."""
    claimed: ClaimedSnapshot | None = None
    named: tuple[int, ...] = ()
    """Checkpoints of this job that users named to start from, until they have deleted them.

    They may be in `completed` or not: what the journal does not list can be restored, too.
    """
    ended: JobEnded | None = None
    """How the newest attempt ended the job, None if it did not."""
    before_start: BeforeStart | None = None
    """The state to return to if the newest attempt fails to start; None once it has started."""

    @property
    def next_attempt(self) -> AttemptId:
        """The id of the next attempt, if it wins the journal."""
        return AttemptId(f"a{self.attempts_so_far + 1}")

    @property
    def last_attempt(self) -> AttemptStarted | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def named_by_user(self) -> frozenset[str]:
        """The paths of the snapshots that the newest attempts were started from, if not its own.

        Only journals of older versions need them: in their entries a path may lead through links
        to a checkpoint of this job, which `named` does not know.
        """
        return frozenset(
            a.restored_path
            for a in self.attempts
            if a.restored is None and a.restored_path is not None
        )

    def committed_upto(self, attempt: str) -> int:
        """Return the highest checkpoint id up to which all output of an attempt is committed.

        Only what the attempt itself prepared is meant, whichever attempt has committed it. Sinks
        that were left out are those in `left_out`.
        """
        done = (c.checkpoint for c in self.completed if c.attempt == attempt)
        retained = max((n for n in done if n in self.commits_done), default=0)
        return max(retained, self.committed.get(attempt, 0))

    def committed_output(self, attempt: str) -> CommittedOutput:
        """Return what is committed of the output of an attempt."""
        return CommittedOutput(self.committed_upto(attempt), self.left_out.get(attempt, {}))

    def committed_foreign(self, checkpoint: int, metadata_crc: int) -> CommittedOutput:
        """Return what this job has committed of a snapshot that is not its own."""
        if self.committed_crc != metadata_crc:
            return CommittedOutput()
        return CommittedOutput(checkpoint, dict.fromkeys(self.committed_crc_without, 0))

    @property
    def is_over(self) -> bool:
        """Whether the job ended, and not by a failure: a new attempt starts from nothing."""
        return self.ended is not None and self.ended.status is not JobStatus.FAILED

    def find(self, checkpoint: int) -> CheckpointCompletedEntry | None:
        """Return the entry of a checkpoint that was completed and not discarded."""
        return next((c for c in self.completed if c.checkpoint == checkpoint), None)


class Summary(Struct, frozen=True, tag=True):
    """Replaces all entries before it, which may be deleted."""

    attempt: str
    time: float
    state: JournalState


JournalEntry = (
    AttemptStarted
    | StartFailed
    | CheckpointIdsReserved
    | CheckpointCompletedEntry
    | CommitsStarted
    | CommitsDone
    | CheckpointDiscarded
    | ClaimedDiscarded
    | JobEnded
    | ResultClean
    | Summary
)
