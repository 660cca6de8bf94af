"""A job that is over and begins anew leaves its old checkpoints behind, whoever dies when."""

from __future__ import annotations

import pytest

from penstock.checkpoint.journal_entries import (
    AttemptStarted,
    CheckpointCompleted,
    EndStatus,
    JobEnded,
    JournalEntry,
    JournalState,
    journal_state,
)
from penstock.recovery.resolve import origins


def state_behind(status: EndStatus | None, *starts: AttemptStarted) -> JournalState:
    entries: list[JournalEntry] = [
        AttemptStarted("a1", 0.0, "h", 1),
        CheckpointCompleted(5, "a1", "/job/chk-5", False, 0, 0.0),
        *([] if status is None else [JobEnded("a1", status, 0.0)]),
        *starts,
    ]
    return journal_state(enumerate(entries, start=1))


OVER = [EndStatus.FINISHED, EndStatus.CANCELED, EndStatus.STOPPED]


@pytest.mark.parametrize("status", OVER)
def test_a_new_life_that_dies_early_does_not_fall_back_into_the_old_one(status: EndStatus) -> None:
    state = state_behind(status, AttemptStarted("a2", 0.0, "h", 1))
    assert state.restorable == ()
    assert origins(state, given=None, fresh=False, restarting=False) == []
    assert origins(state, given=None, fresh=False, restarting=True) == []


def test_a_job_that_failed_or_died_is_not_over() -> None:
    for status in (EndStatus.FAILED, None):
        state = state_behind(status, AttemptStarted("a2", 0.0, "h", 1))
        assert [c.checkpoint for c in state.restorable] == [5]
