"""Which snapshots belong to the lineage of a job: abandoned, fallen back from, claimed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointCompletedEntry,
    CheckpointDiscarded,
    ClaimedDiscarded,
    JobEnded,
    JournalEntry,
    JournalState,
    RecordedStatus,
    StartFailed,
)
from penstock.checkpoint.storage.journal_state import journal_state
from penstock.recovery.restore_candidates import restore_candidates


def state_behind(status: RecordedStatus | None, *starts: AttemptStarted) -> JournalState:
    entries: list[JournalEntry] = [
        AttemptStarted("a1", 0.0, "h", 1),
        CheckpointCompletedEntry(5, "a1", "/job/chk-5", False, 0, 0.0),
        *([] if status is None else [JobEnded("a1", status, 0.0)]),
        *starts,
    ]
    return journal_state(enumerate(entries, start=1))


OVER: list[RecordedStatus] = ["FINISHED", "CANCELED", "STOPPED"]


@pytest.mark.parametrize("status", OVER)
def test_a_new_lineage_that_dies_early_does_not_return_to_the_old_one(
    status: RecordedStatus,
) -> None:
    state = state_behind(status, AttemptStarted("a2", 0.0, "h", 1))
    assert state.restorable == ()
    assert restore_candidates(state, given=None, fresh=False, restarting=False) == []
    assert restore_candidates(state, given=None, fresh=False, restarting=True) == []


def test_a_job_that_failed_or_died_is_not_over() -> None:
    failed_or_died: list[RecordedStatus | None] = ["FAILED", None]
    for status in failed_or_died:
        state = state_behind(status, AttemptStarted("a2", 0.0, "h", 1))
        assert [c.checkpoint for c in state.restorable] == [5]


# -- checkpoints that the job fell back from ----------------------------------------------------


def started(attempt: str, restored: int | None = None, **more: Any) -> AttemptStarted:
    path = {} if restored is None else {"restored_path": f"/job/chk-{restored}"}
    return AttemptStarted(attempt, 0.0, "h", 1, restored, **{**path, **more})


def completed(n: int, attempt: str = "a1", *, savepoint: bool = False) -> CheckpointCompletedEntry:
    return CheckpointCompletedEntry(n, attempt, f"/job/chk-{n}", savepoint, 0, 0.0)


def fallen_back(*entries: JournalEntry) -> list[int]:
    found = journal_state(enumerate(entries, 1)).fallen_back
    return [c.checkpoint for c in found]


def test_newer_checkpoints_than_the_restored_one_are_fallen_back_from() -> None:
    before: list[JournalEntry] = [started("a1"), completed(1), completed(2), completed(3)]
    assert fallen_back(*before, started("a2", 3)) == []
    assert fallen_back(*before, started("a2", 1)) == [2, 3]
    assert fallen_back(*before, started("a2", 2), started("a3", 1)) == [3, 2]
    assert fallen_back(*before, started("a2", 1), CheckpointDiscarded(2, "a2", 0.0)) == [3]


def test_a_failed_start_falls_back_from_nothing() -> None:
    before: list[JournalEntry] = [started("a1"), completed(1), completed(2)]
    failed = [*before, started("a2", 1), StartFailed("a2", 0.0)]
    assert fallen_back(*failed) == []
    assert fallen_back(*failed, started("a3", 1)) == [2]


@pytest.mark.parametrize(
    "start", [started("a3", fresh=True), started("a3", restored_path="/elsewhere")]
)
def test_what_is_abandoned_is_left_to_the_user(start: AttemptStarted) -> None:
    assert fallen_back(started("a1"), completed(1), completed(2), started("a2", 1), start) == []


# -- claimed snapshots --------------------------------------------------------------------------

CLAIMS = started("a1", restored_path="/theirs", restored_crc=7, claims=True)


def claimed(*entries: JournalEntry) -> str | None:
    found = journal_state(enumerate(entries, 1)).claimed
    return None if found is None else found.path


def test_a_claimed_snapshot_is_known_until_it_is_discarded() -> None:
    assert claimed(CLAIMS, completed(9), started("a2", 9)) == "/theirs"
    assert claimed(CLAIMS, ClaimedDiscarded("a1", "/other", 0.0)) == "/theirs"
    assert claimed(CLAIMS, ClaimedDiscarded("a1", "/theirs", 0.0)) is None


@pytest.mark.parametrize(
    "start", [started("a2", fresh=True), started("a2", restored_path="/theirs", restored_crc=7)]
)
def test_a_claim_ends_when_the_job_does_not_continue_from_it(start: AttemptStarted) -> None:
    assert claimed(CLAIMS, start) is None
    assert claimed(CLAIMS, start, StartFailed("a2", 0.0)) == "/theirs"


def test_a_failed_start_claims_nothing() -> None:
    assert claimed(started("a0"), CLAIMS, StartFailed("a1", 0.0)) is None
