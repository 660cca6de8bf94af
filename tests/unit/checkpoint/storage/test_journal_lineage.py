"""A job that has ended and starts from nothing never returns to its old checkpoints."""

from __future__ import annotations

import pytest

from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointCompletedEntry,
    JobEnded,
    JournalEntry,
    JournalState,
    RecordedStatus,
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
