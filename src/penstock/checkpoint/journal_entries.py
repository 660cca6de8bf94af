"""What a job's journal can say, and what all of it together means."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from posixpath import normpath

from msgspec import Struct, structs

from penstock.ids import AttemptId, CheckpointId

__all__ = [
    "AttemptStarted",
    "CheckpointCompleted",
    "CheckpointDiscarded",
    "CheckpointIdsReserved",
    "CommitsDone",
    "CommitsStarted",
    "EndStatus",
    "JobEnded",
    "JournalEntry",
    "JournalState",
    "StartFailed",
    "Summary",
    "journal_state",
]

_ATTEMPTS_KEPT = 100


class EndStatus(StrEnum):
    """How a job came to its end."""

    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


class AttemptStarted(Struct, frozen=True, tag=True):
    """A driver takes the job: nobody else writes from here on until the next such entry.

    `restored` and `restored_path` say what it begins with: the id and the path of a checkpoint
    of this job as its `CheckpointCompleted` has them, or those of any other snapshot. `given_path`
    is the snapshot the user named, whatever it begins with. `fresh` says that it was told to begin
    with nothing, though there may be checkpoints.
    """

    attempt: str
    time: float
    host: str
    pid: int
    restored: int | None = None
    restored_path: str | None = None
    given_path: str | None = None
    fresh: bool = False
    life: str = ""
    """The attempt with which the job last began anew; this one, if it does."""
    work_dirs: list[str] = []
    """Where the attempt keeps files outside of the job's directory, for others to clean up."""


class StartFailed(Struct, frozen=True, tag=True):
    """The attempt ended before it ran: all is as it was before it, only its id is used up.

    It changes nothing if sinks may have shown something by then: what the attempt turned away
    from stays behind, unless the user says otherwise. A driver that is killed while it starts does
    not write it; the next one begins with the same snapshot.
    """

    attempt: str
    time: float


class CheckpointIdsReserved(Struct, frozen=True, tag=True):
    """Ids up to this one may have been used; the next attempt begins behind them."""

    attempt: str
    upto: int
    time: float


class CheckpointCompleted(Struct, frozen=True, tag=True):
    """A checkpoint counts from here on; its metadata was written and read back before."""

    checkpoint: int
    attempt: str
    path: str
    """As `JobDir.named` has it."""
    savepoint: bool
    metadata_crc: int
    time: float


class CommitsStarted(Struct, frozen=True, tag=True):
    """Sinks may show what belongs to a checkpoint; an older one cannot be restored unharmed."""

    checkpoint: int
    attempt: str
    time: float


class CommitsDone(Struct, frozen=True, tag=True):
    """All that sinks owed up to a checkpoint is visible."""

    checkpoint: int
    attempt: str
    time: float


class CheckpointDiscarded(Struct, frozen=True, tag=True):
    """A checkpoint must not be restored any more; its files go, or have gone."""

    checkpoint: int
    attempt: str
    time: float


class JobEnded(Struct, frozen=True, tag=True):
    """The job is over; only a new attempt, by hand, would change that."""

    attempt: str
    status: EndStatus
    time: float
    savepoint: str | None = None


class BeforeStart(Struct, frozen=True):
    """What an attempt found when it started."""

    restorable: tuple[CheckpointCompleted, ...] = ()
    ended: JobEnded | None = None


class JournalState(Struct, frozen=True):
    """What a journal says, read to its end."""

    tail: int = 0
    """Index of the last entry."""
    attempts_so_far: int = 0
    attempts: tuple[AttemptStarted, ...] = ()
    """The newest ones, at most a hundred, newest last."""
    highest_id: int = 0
    """No checkpoint id up to this one may be used again."""
    completed: tuple[CheckpointCompleted, ...] = ()
    """All that were not discarded, savepoints too, newest last."""
    restorable: tuple[CheckpointCompleted, ...] = ()
    """Those of `completed` a new attempt may go on from by itself, newest last.

    Savepoints are not among them, unless the job was to end there and has begun to commit; nor
    checkpoints the job has turned away from: by starting fresh, by restoring something else, or
    by going back to an older one. If there are none, a new attempt begins with what the last one
    began with.
    """
    commits_started: frozenset[int] = frozenset()
    """Of retained and newer checkpoints."""
    commits_done: frozenset[int] = frozenset()
    ended: JobEnded | None = None
    """How the newest attempt ended the job, None if it did not."""
    before_start: BeforeStart | None = None
    """What counts again if the newest attempt fails to start; None once it cannot."""

    @property
    def next_attempt(self) -> AttemptId:
        """The id a new attempt will have, if it wins."""
        return AttemptId(f"a{self.attempts_so_far + 1}")

    @property
    def next_id(self) -> CheckpointId:
        """The lowest checkpoint id that nobody can have used."""
        return CheckpointId(self.highest_id + 1)

    @property
    def last_attempt(self) -> AttemptStarted | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def is_over(self) -> bool:
        """Whether the job came to an end that only a new beginning follows."""
        return self.ended is not None and self.ended.status is not EndStatus.FAILED

    def find(self, checkpoint: int) -> CheckpointCompleted | None:
        """Return a checkpoint that was completed and not discarded."""
        return next((c for c in self.completed if c.checkpoint == checkpoint), None)


class Summary(Struct, frozen=True, tag=True):
    """Stands for all entries before it, which may be deleted."""

    attempt: str
    time: float
    state: JournalState


JournalEntry = (
    AttemptStarted
    | StartFailed
    | CheckpointIdsReserved
    | CheckpointCompleted
    | CommitsStarted
    | CommitsDone
    | CheckpointDiscarded
    | JobEnded
    | Summary
)


def journal_state(entries: Iterable[tuple[int, JournalEntry]]) -> JournalState:
    """Return what entries, in order and with their indexes, mean."""
    return reduce(lambda state, entry: after(state, *entry), entries, JournalState())


def after(state: JournalState, index: int, entry: JournalEntry) -> JournalState:
    """Return the state behind one more entry."""
    match entry:
        case Summary():
            state = entry.state
        case AttemptStarted():
            state = structs.replace(
                state,
                attempts_so_far=state.attempts_so_far + 1,
                attempts=(*state.attempts, entry)[-_ATTEMPTS_KEPT:],
                highest_id=max(state.highest_id, entry.restored or 0),
                restorable=_still_restorable(state, entry),
                ended=None,
                before_start=BeforeStart(state.restorable, state.ended),
            )
        case StartFailed():
            state = _without_newest_attempt(state)
        case CheckpointIdsReserved():
            state = structs.replace(state, highest_id=max(state.highest_id, entry.upto))
        case CheckpointCompleted():
            # Commits of its id that came before it were those of another job's snapshot.
            state = structs.replace(
                state,
                highest_id=max(state.highest_id, entry.checkpoint),
                commits_started=state.commits_started - {entry.checkpoint},
                commits_done=state.commits_done - {entry.checkpoint},
                completed=(*state.completed, entry),
                restorable=state.restorable if entry.savepoint else (*state.restorable, entry),
                before_start=None,
            )
        case CheckpointDiscarded():
            state = _forget_commits(
                structs.replace(
                    state,
                    completed=_without(state.completed, entry.checkpoint),
                    restorable=_without(state.restorable, entry.checkpoint),
                    before_start=_found_without(state.before_start, entry.checkpoint),
                )
            )
        case CommitsStarted():
            started = state.commits_started | {entry.checkpoint}
            state = structs.replace(
                state,
                commits_started=started,
                restorable=_with_committed(state, entry),
                before_start=None,
            )
        case CommitsDone():
            done = state.commits_done | {entry.checkpoint}
            state = structs.replace(state, commits_done=done)
        case JobEnded():
            state = structs.replace(state, ended=entry, before_start=None)
    return structs.replace(state, tail=index)


def _still_restorable(
    state: JournalState, start: AttemptStarted
) -> tuple[CheckpointCompleted, ...]:
    restorable = state.restorable
    if start.fresh:
        return ()
    if start.restored is None:
        begins_anew = start.restored_path is not None or state.is_over
        return () if begins_anew else restorable
    if not any(_is(c, start.restored, start.restored_path) for c in restorable):
        return ()
    return tuple(c for c in restorable if c.checkpoint <= start.restored)


def _without_newest_attempt(state: JournalState) -> JournalState:
    found = state.before_start
    if found is None:
        return state
    return structs.replace(
        state,
        attempts=state.attempts[:-1],
        restorable=found.restorable,
        ended=found.ended,
        before_start=None,
    )


def _found_without(found: BeforeStart | None, checkpoint: int) -> BeforeStart | None:
    if found is None:
        return None
    return structs.replace(found, restorable=_without(found.restorable, checkpoint))


def _with_committed(
    state: JournalState, started: CommitsStarted
) -> tuple[CheckpointCompleted, ...]:
    # A stop commits what its savepoint holds: an older checkpoint would emit that again.
    found = state.find(started.checkpoint)
    if found is None or not found.savepoint or found.attempt != started.attempt:
        return state.restorable
    return (*_without(state.restorable, found.checkpoint), found)


def _is(completed: CheckpointCompleted, checkpoint: int, path: str | None) -> bool:
    # Another job's snapshot may have the same id.
    same_place = path is None or normpath(path) == normpath(completed.path)
    return completed.checkpoint == checkpoint and same_place


def _without(
    completed: tuple[CheckpointCompleted, ...], checkpoint: int
) -> tuple[CheckpointCompleted, ...]:
    return tuple(c for c in completed if c.checkpoint != checkpoint)


def _forget_commits(state: JournalState) -> JournalState:
    # An older one than the oldest retained will never be asked about, and the sets stay small.
    kept = [c.checkpoint for c in state.completed if not c.savepoint]
    if not kept:
        return state
    oldest = min(kept)
    return structs.replace(
        state,
        commits_started=frozenset(n for n in state.commits_started if n >= oldest),
        commits_done=frozenset(n for n in state.commits_done if n >= oldest),
    )
