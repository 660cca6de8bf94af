"""What a submitted job is started from when it is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointCompletedEntry,
    JobEnded,
    JournalEntry,
)
from penstock.checkpoint.storage.journal_state import journal_state
from penstock.common.job_status import JobStatus
from penstock.errors import RestartRefusedError
from penstock.ids import JobKey
from penstock.serve.submission.records import StartRequest
from penstock.serve.submission.restarts import Restore, decide_restart

JOB = JobDir(Path("/c"), JobKey("job"))
STARTED = AttemptStarted("a1", 10.0, "host", 1)
CHECKPOINT = CheckpointCompletedEntry(1, "a1", "chk-1", False, 0, 11.0)
STOPPED = JobEnded.of("a1", JobStatus.FINISHED, 12.0, "/savepoints/2")


def ended(status: JobStatus, *, retained: bool | None = None) -> JobEnded:
    return JobEnded("a1", status.name, 12.0, retained=retained)  # type: ignore[arg-type]


def decided(
    *entries: JournalEntry,
    last: StartRequest | None = None,
    path: str | None = None,
    fresh: bool = False,
) -> Restore:
    state = journal_state(enumerate(entries, 1))
    return decide_restart(JOB, state, last or StartRequest(9.0), path=path, fresh=fresh)


@pytest.mark.parametrize(
    "entries",
    [
        (STARTED,),
        (STARTED, CHECKPOINT),
        (STARTED, CHECKPOINT, ended(JobStatus.FAILED)),
    ],
)
def test_a_job_that_died_or_failed_resumes_by_itself(entries: tuple[JournalEntry, ...]) -> None:
    assert decided(*entries) == Restore()


def test_what_the_first_start_restored_is_not_restored_again() -> None:
    for last in (StartRequest(9.0, "/savepoints/0"), StartRequest(9.0, fresh=True)):
        assert decided(STARTED, CHECKPOINT, last=last) == Restore()


def test_a_start_that_has_not_become_an_attempt_is_repeated() -> None:
    for restore in (Restore("/savepoints/0"), Restore(None, True)):
        last = StartRequest(20.0, restore.path, restore.fresh)
        assert decided(last=last) == restore
        assert decided(STARTED, CHECKPOINT, ended(JobStatus.FAILED), last=last) == restore
        assert decided(STARTED, CHECKPOINT, STOPPED, last=last) == restore


def test_a_job_that_was_stopped_resumes_from_its_savepoint() -> None:
    assert decided(STARTED, CHECKPOINT, STOPPED) == Restore("/savepoints/2")


def test_a_canceled_job_resumes_from_the_checkpoint_that_it_retains() -> None:
    canceled = ended(JobStatus.CANCELED, retained=True)
    assert decided(STARTED, CHECKPOINT, canceled) == Restore("/c/job/chk-1")


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.CANCELED])
def test_a_job_that_is_over_does_not_read_its_input_again(status: JobStatus) -> None:
    with pytest.raises(RestartRefusedError, match="read its input again"):
        decided(STARTED, ended(status))


def test_the_user_decides_first() -> None:
    entries = STARTED, CHECKPOINT, STOPPED
    assert decided(*entries, path="/savepoints/1") == Restore("/savepoints/1")
    assert decided(*entries, fresh=True) == Restore(None, True)
