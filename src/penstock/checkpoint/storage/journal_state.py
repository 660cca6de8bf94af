"""Computes the state of a job from the entries of its journal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from posixpath import normpath
from typing import Any

from msgspec import structs

from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    BeforeStart,
    CheckpointCompletedEntry,
    CheckpointDiscarded,
    CheckpointIdsReserved,
    ClaimedDiscarded,
    ClaimedSnapshot,
    CommitsDone,
    CommitsStarted,
    CompletedEntries,
    JobEnded,
    JournalEntry,
    JournalState,
    ResultClean,
    StartFailed,
    Summary,
)

_ATTEMPTS_KEPT = 100
_CHECKPOINT = re.compile(r"chk-([1-9][0-9]*)")
"""The journal's path of a checkpoint of this job: relative to the job's directory."""


def journal_state(entries: Iterable[tuple[int, JournalEntry]]) -> JournalState:
    """Return the state after some entries, in order and with their indexes."""
    return reduce(lambda state, entry: after(state, *entry), entries, JournalState())


def after(state: JournalState, index: int, entry: JournalEntry) -> JournalState:
    """Return the state after one more entry."""
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
                fallen_back=_fallen_back(state, entry),
                claimed=_claimed(state, entry),
                named=_named(state, entry),
                ended=None,
                before_start=BeforeStart(
                    state.restorable, state.ended, state.fallen_back, state.claimed
                ),
            )
        case StartFailed():
            state = _without_newest_attempt(state)
        case CheckpointIdsReserved():
            state = structs.replace(state, highest_id=max(state.highest_id, entry.upto))
        case CheckpointCompletedEntry():
            # Before, so that this id has no commits: in old journals it may be another job's.
            state = _forget_commits(state)
            state = structs.replace(
                state,
                highest_id=max(state.highest_id, entry.checkpoint),
                completed=(*state.completed, entry),
                restorable=state.restorable if entry.savepoint else (*state.restorable, entry),
                before_start=None,
            )
        case CheckpointDiscarded(discarded):
            before = state.before_start
            if before is not None:
                before = structs.replace(
                    before,
                    restorable=_without(before.restorable, discarded),
                    fallen_back=_without(before.fallen_back, discarded),
                )
            state = structs.replace(
                state,
                completed=_without(state.completed, discarded),
                restorable=_without(state.restorable, discarded),
                fallen_back=_without(state.fallen_back, discarded),
                named=tuple(n for n in state.named if n != discarded),
                before_start=before,
            )
            state = _forget_commits(state)
        case ClaimedDiscarded():
            is_same = state.claimed is not None and state.claimed.path == entry.path
            state = structs.replace(state, claimed=None if is_same else state.claimed)
        case CommitsStarted():
            state = structs.replace(
                state,
                commits_started=state.commits_started | _committed_ids(state, entry),
                restorable=_with_committed(state, entry),
                before_start=None,
            )
        case CommitsDone():
            state = structs.replace(
                state,
                commits_done=_commits_done(state, entry),
                committed=_committed(state, entry),
                left_out=_left_out(state, entry),
                **_committed_foreign(state, entry),
            )
        case JobEnded():
            state = structs.replace(state, ended=entry, before_start=None)
        case ResultClean():
            if state.ended is not None:
                state = structs.replace(state, ended=structs.replace(state.ended, driver=None))
    return structs.replace(state, tail=index)


def _still_restorable(state: JournalState, start: AttemptStarted) -> CompletedEntries:
    restorable = state.restorable
    if start.fresh:
        return ()
    if start.restored is None:
        abandons_all = start.restored_path is not None or state.is_over
        return () if abandons_all else restorable
    if not any(_is(c, start.restored, start.restored_path) for c in restorable):
        return ()
    return tuple(c for c in restorable if c.checkpoint <= start.restored)


def _fallen_back(state: JournalState, start: AttemptStarted) -> CompletedEntries:
    left = _still_restorable(state, start)
    if not left:
        return ()  # all are abandoned, and stay: only the user knows what for
    newer = (c for c in state.restorable if c not in left and not c.savepoint)
    return (*state.fallen_back, *newer)


def _claimed(state: JournalState, start: AttemptStarted) -> ClaimedSnapshot | None:
    if start.claims and start.restored_path is not None and start.restored_crc is not None:
        return ClaimedSnapshot(start.restored_path, start.restored_crc)
    # What the job does not continue from is not subsumed by its checkpoints.
    return None if start.restored is None else state.claimed


def _named(state: JournalState, start: AttemptStarted) -> tuple[int, ...]:
    # An attempt that fails to start does not change that the user needs it.
    found = _CHECKPOINT.fullmatch(normpath(start.restored_path or ""))
    if start.restored is not None or found is None or int(found[1]) in state.named:
        return state.named
    return (*state.named, int(found[1]))


def _without_newest_attempt(state: JournalState) -> JournalState:
    found = state.before_start
    if found is None:
        return state
    return structs.replace(
        state,
        attempts=state.attempts[:-1],
        restorable=found.restorable,
        fallen_back=found.fallen_back,
        claimed=found.claimed,
        ended=found.ended,
        before_start=None,
    )


def _with_committed(state: JournalState, started: CommitsStarted) -> CompletedEntries:
    # A stop commits what its savepoint holds: restoring an older checkpoint would duplicate it.
    found = _own(state, started)
    if found is None or not found.savepoint or found.attempt != started.attempt:
        return state.restorable
    return (*_without(state.restorable, found.checkpoint), found)


def _committed_ids(state: JournalState, commits: CommitsStarted | CommitsDone) -> set[int]:
    found = _own(state, commits)
    if found is None:
        # A checkpoint that was discarded meanwhile, unless a snapshot of another job has its id.
        return set() if state.find(commits.checkpoint) else {commits.checkpoint}
    if isinstance(commits, CommitsStarted):
        return {found.checkpoint}
    # A checkpoint holds what earlier snapshots of its attempt hold, savepoints too.
    return {
        c.checkpoint
        for c in state.completed
        if c.attempt == found.attempt and c.checkpoint <= found.checkpoint
    }


def _commits_done(state: JournalState, done: CommitsDone) -> frozenset[int]:
    found = _own(state, done)
    if found is not None and found.attempt in _left_out(state, done):
        return state.commits_done
    return state.commits_done | _committed_ids(state, done)


def _left_out(state: JournalState, done: CommitsDone) -> dict[str, dict[str, int]]:
    found, last = _own(state, done), state.last_attempt
    if found is None or last is None:
        return state.left_out
    is_restored = found.attempt != done.attempt
    missing = last.left_out if is_restored else ()
    before = state.committed_output(found.attempt)
    upto = max(before.upto, done.checkpoint)
    levels = {
        **{uid: max(n, done.checkpoint) for uid, n in before.left_out.items()},
        **{uid: before.upto_of(uid) for uid in missing},
    }
    left = {uid: n for uid, n in levels.items() if n < upto}
    others = {a: uids for a, uids in state.left_out.items() if a != found.attempt}
    return {**others, found.attempt: left} if left else others


def _committed(state: JournalState, done: CommitsDone) -> dict[str, int]:
    found = _own(state, done)
    if found is not None:
        attempt = found.attempt
    elif any(c.attempt == done.attempt for c in state.completed):
        # It was discarded while it was being committed. The snapshot that an attempt was started
        # from is committed before the attempt takes one.
        attempt = done.attempt
    else:
        return state.committed
    highest = max(state.committed_upto(attempt), done.checkpoint)
    return {**state.committed, attempt: highest}


def _committed_foreign(state: JournalState, done: CommitsDone) -> dict[str, Any]:
    last = state.last_attempt
    if _own(state, done) is not None or last is None or last.restored is not None:
        return {}
    if last.restored_crc is None:
        return {}
    # Before anything else, the attempt has committed what it was started from.
    return {"committed_crc": last.restored_crc, "committed_crc_without": tuple(last.left_out)}


def _own(
    state: JournalState, commits: CommitsStarted | CommitsDone
) -> CheckpointCompletedEntry | None:
    """Return the job's own snapshot that commits are of, None if they are of another one.

    An attempt that was started from a snapshot that is not the job's own commits what that holds,
    under an id that an older snapshot of the job may have, too.
    """
    found, last = state.find(commits.checkpoint), state.last_attempt
    if found is None or found.attempt == commits.attempt or last is None:
        return found
    is_restored = last.restored is not None and _is(found, last.restored, last.restored_path)
    return found if is_restored else None


def _is(completed: CheckpointCompletedEntry, checkpoint: int, path: str | None) -> bool:
    # Another job's snapshot may have the same id.
    same_place = path is None or normpath(path) == normpath(completed.path)
    return completed.checkpoint == checkpoint and same_place


def _without(completed: CompletedEntries, checkpoint: int) -> CompletedEntries:
    return tuple(c for c in completed if c.checkpoint != checkpoint)


def _forget_commits(state: JournalState) -> JournalState:
    # Those of discarded snapshots do not matter; the sets stay small.
    known = frozenset(c.checkpoint for c in state.completed)
    attempts = {c.attempt for c in state.completed}
    return structs.replace(
        state,
        commits_started=state.commits_started & known,
        commits_done=state.commits_done & known,
        committed={a: n for a, n in state.committed.items() if a in attempts},
        left_out={a: uids for a, uids in state.left_out.items() if a in attempts},
    )
