"""Which snapshot an attempt begins with, read from journals as drivers leave them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.settings import Guarantee
from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointCompletedEntry,
    CheckpointDiscarded,
    CommitsDone,
    CommitsStarted,
    JobEnded,
    JournalEntry,
    JournalState,
    RecordedStatus,
    StartFailed,
)
from penstock.checkpoint.storage.journal_state import journal_state
from penstock.errors import BadCheckpointError
from penstock.ids import CheckpointId
from penstock.recovery.restore_candidates import (
    RestoreCandidate,
    check_fallback,
    lineage_of,
    restore_candidates,
)

GIVEN, OTHER = Path("/savepoints/a"), Path("/savepoints/b")


def state(*entries: JournalEntry) -> JournalState:
    return journal_state(enumerate(entries, 1))


def started(attempt: str = "a1", **more: Any) -> AttemptStarted:
    return AttemptStarted(attempt, 1.0, "host", 1, **{"lineage": attempt, **more})


def completed(n: int, attempt: str = "a1", *, savepoint: bool = False) -> CheckpointCompletedEntry:
    path = f"/savepoints/{n}" if savepoint else f"/jobs/count/chk-{n}"
    return CheckpointCompletedEntry(n, attempt, path, savepoint, 7, 1.0)


def ended(status: RecordedStatus, attempt: str = "a1") -> JobEnded:
    return JobEnded(attempt, status, 1.0)


def begins(journal: JournalState, **how: Any) -> list[int | str]:
    """What an attempt would begin with: ids of own checkpoints, paths of others."""
    given: dict[str, Any] = {"given": None, "fresh": False, "restarting": False, **how}
    return [o.checkpoint or str(o.path) for o in restore_candidates(journal, **given)]


def test_a_new_job_starts_from_nothing_or_from_the_given_snapshot() -> None:
    assert begins(state()) == []
    assert begins(state(), given=GIVEN) == [str(GIVEN)]


def test_a_job_that_died_resumes_from_its_newest_checkpoint_and_may_fall_back() -> None:
    died = state(started(), completed(1), completed(2), completed(3, savepoint=True))
    assert begins(died) == [2, 1]
    assert begins(died, restarting=True) == [2, 1]


def test_a_job_that_died_before_its_first_checkpoint_begins_as_it_did() -> None:
    assert begins(state(started())) == []
    with_savepoint = state(started(restored_path=str(GIVEN), given_path=str(GIVEN)))
    assert begins(with_savepoint) == [str(GIVEN)]
    assert begins(with_savepoint, given=GIVEN) == [str(GIVEN)]
    assert begins(with_savepoint, restarting=True) == [str(GIVEN)]


@pytest.mark.parametrize("status", ["FINISHED", "CANCELED", "STOPPED"])
def test_a_job_that_ended_starts_from_nothing(status: RecordedStatus) -> None:
    over = state(started(), completed(1), ended(status))
    assert begins(over) == []
    assert begins(over, given=GIVEN) == [str(GIVEN)]


def test_a_job_that_failed_resumes() -> None:
    assert begins(state(started(), completed(1), ended("FAILED"))) == [1]


def test_fresh_means_nothing_but_not_for_restarts() -> None:
    died = state(started(), completed(1))
    assert begins(died, fresh=True) == []
    assert begins(died, fresh=True, given=GIVEN) == []
    assert begins(died, fresh=True, restarting=True) == [1]


def test_checkpoints_before_a_fresh_start_are_not_restored() -> None:
    fresh = state(started(), completed(1), started("a2", fresh=True))
    assert begins(fresh) == []
    assert begins(fresh, restarting=True) == []


def test_another_snapshot_given_to_a_job_that_died_is_restored() -> None:
    died = state(started(given_path=str(GIVEN), restored_path=str(GIVEN)), completed(1))
    assert begins(died, given=OTHER) == [str(OTHER)]
    assert begins(state(started(), completed(1)), given=GIVEN) == [str(GIVEN)]


def test_the_same_words_again_go_on_where_the_job_was() -> None:
    died = state(
        started(given_path=str(GIVEN), restored_path=str(GIVEN)),
        completed(1),
        started("a2", lineage="a1", restored=1, given_path=str(GIVEN)),
        completed(2, "a2"),
    )
    assert begins(died, given=GIVEN) == [2, 1]


def test_a_snapshot_given_in_an_earlier_lineage_counts_for_that_lineage_only() -> None:
    died = state(
        started(given_path=str(GIVEN), restored_path=str(GIVEN)),
        ended("FINISHED"),
        started("a2"),
        completed(1, "a2"),
    )
    assert begins(died, given=GIVEN) == [str(GIVEN)]
    assert begins(died) == [1]


def test_a_stop_that_has_started_to_commit_is_resumed() -> None:
    stopping: list[JournalEntry] = [started(), completed(1), completed(2, savepoint=True)]
    assert begins(state(*stopping)) == [1]
    assert begins(state(*stopping, CommitsStarted(2, "a1", 1.0))) == [2, 1]


def test_candidates_know_whether_their_checkpoint_is_committed() -> None:
    committed = CommitsStarted(1, "a1", 1.0), CommitsDone(1, "a1", 1.0)
    died = state(started(), completed(1), *committed, completed(2), CommitsStarted(2, "a1", 1.0))
    found = restore_candidates(died, given=None, fresh=False, restarting=False)
    assert [(o.checkpoint, o.committed.upto) for o in found] == [(2, 1), (1, 1)]
    given = restore_candidates(died, given=Path("/jobs/count/chk-1"), fresh=False, restarting=False)
    assert [o.committed.upto for o in given] == [0]


def test_commits_of_another_attempt_make_no_savepoint_the_jobs_own() -> None:
    # A snapshot of another job may have the id of a savepoint of this one.
    plain: list[JournalEntry] = [started(), completed(1), completed(2, savepoint=True)]
    plain.append(started("a2", restored=1))
    assert begins(state(*plain, CommitsStarted(2, "a2", 1.0))) == [1]


def test_an_origin_knows_whether_its_output_may_be_seen() -> None:
    died = state(started(), completed(1), CommitsStarted(1, "a1", 1.0), completed(2))
    found = restore_candidates(died, given=None, fresh=False, restarting=False)
    assert [(o.checkpoint, o.commits_started, o.crc) for o in found] == [
        (2, False, 7),
        (1, True, 7),
    ]


# -- starts that failed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [
        {"restored_path": str(GIVEN), "given_path": str(GIVEN)},
        {"fresh": True},
        {"restored": 1, "restored_path": "/jobs/count/chk-1"},
    ],
)
def test_a_start_that_failed_takes_nothing_from_the_job(start: dict[str, Any]) -> None:
    died: list[JournalEntry] = [started(), completed(1), completed(2)]
    failed = state(*died, started("a2", **start), StartFailed("a2", 1.0))
    assert begins(failed) == begins(failed, restarting=True) == [2, 1]
    assert begins(failed, given=GIVEN) == [str(GIVEN)]
    assert failed.next_attempt == "a3"


def test_a_job_that_was_over_is_over_after_a_failed_start() -> None:
    over: list[JournalEntry] = [started(), completed(1), ended("FINISHED")]
    began = started("a2", restored_path=str(GIVEN), given_path=str(GIVEN))
    assert begins(state(*over, began)) == [str(GIVEN)]
    failed = state(*over, began, CheckpointDiscarded(1, "a2", 1.0), StartFailed("a2", 1.0))
    assert begins(failed) == []
    assert failed.is_over
    assert failed.restorable == ()


def test_after_commits_of_the_given_snapshot_the_job_does_not_return_by_itself() -> None:
    began = started("a2", restored_path=str(GIVEN), given_path=str(GIVEN))
    committed = CommitsStarted(9, "a2", 1.0)
    failed = state(started(), completed(1), began, committed, StartFailed("a2", 1.0))
    assert begins(failed) == begins(failed, given=GIVEN) == [str(GIVEN)]


def test_a_driver_killed_while_it_starts_leaves_the_next_one_the_same_snapshot() -> None:
    began = started("a2", restored_path=str(GIVEN), given_path=str(GIVEN))
    again = started("a3", lineage="a2", restored_path=str(GIVEN))
    failed = state(started(), completed(1), began, again, StartFailed("a3", 1.0))
    assert begins(failed) == [str(GIVEN)]


# -- lineages -----------------------------------------------------------------------------------


def test_a_lineage_continues_through_restarts_and_ends_with_the_job() -> None:
    died = state(started(), completed(1))
    assert lineage_of(died, "a2", None, fresh=False, restarting=False) == "a1"
    assert lineage_of(died, "a2", None, fresh=False, restarting=True) == "a1"
    assert lineage_of(died, "a2", None, fresh=True, restarting=False) == "a2"
    assert lineage_of(died, "a2", None, fresh=True, restarting=True) == "a1"
    over = state(started(), ended("FINISHED"))
    assert lineage_of(over, "a2", None, fresh=False, restarting=False) == "a2"
    assert lineage_of(state(), "a1", None, fresh=False, restarting=False) == "a1"


def test_a_snapshot_brings_its_lineage() -> None:
    assert lineage_of(state(started()), "a5", "a3", fresh=False, restarting=False) == "a3"


# -- going back ---------------------------------------------------------------------------------

BAD = RestoreCandidate("/chk-2", CheckpointId(2))
OLDER = [RestoreCandidate("/chk-1", CheckpointId(1))]


def test_an_older_checkpoint_may_be_restored_while_nothing_was_committed() -> None:
    check_fallback(BAD, "torn", OLDER, Guarantee.EXACTLY_ONCE, accept_duplicates=False)


@pytest.mark.parametrize(
    ("mode", "accepts", "is_allowed"),
    [
        (Guarantee.EXACTLY_ONCE, False, False),
        (Guarantee.AT_MOST_ONCE, False, False),
        (Guarantee.AT_LEAST_ONCE, False, True),
        (Guarantee.EXACTLY_ONCE, True, True),
    ],
)
def test_after_commits_an_older_checkpoint_needs_the_users_consent(
    mode: Guarantee, accepts: bool, is_allowed: bool
) -> None:
    bad = RestoreCandidate(BAD.path, BAD.checkpoint, commits_started=True)
    if is_allowed:
        check_fallback(bad, "torn", OLDER, mode, accept_duplicates=accepts)
        return
    with pytest.raises(BadCheckpointError) as refused:
        check_fallback(bad, "torn", OLDER, mode, accept_duplicates=accepts)
    assert (refused.value.checkpoint, refused.value.older) == (2, 1)


def test_without_an_older_checkpoint_there_is_no_going_back() -> None:
    with pytest.raises(BadCheckpointError, match="there is no older checkpoint"):
        check_fallback(BAD, "torn", [], Guarantee.AT_LEAST_ONCE, accept_duplicates=True)
