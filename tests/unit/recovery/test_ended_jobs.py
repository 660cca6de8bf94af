from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    DriverProcess,
    JobEnded,
    JournalEntry,
    JournalState,
    ResultClean,
    StartFailed,
)
from penstock.checkpoint.storage.journal_state import journal_state
from penstock.common.job_status import JobStatus
from penstock.errors import StoppedJobError
from penstock.recovery.ended_jobs import end_to_report, refuse_stopped

DRIVER = DriverProcess("host", "machine", 4711, 99, "digest", execution=2)


def after(*entries: JournalEntry) -> JournalState:
    return journal_state(enumerate(entries, 1))


def started(attempt: str = "a1", given: str | None = None) -> AttemptStarted:
    return AttemptStarted(attempt, 1.0, "host", 4711, given_path=given, lineage="a1")


def ended(
    status: JobStatus = JobStatus.FINISHED,
    savepoint: str | None = None,
    driver: DriverProcess | None = DRIVER,
) -> JobEnded:
    return JobEnded.of("a1", status, 2.0, savepoint, driver=driver)


def reported(state: JournalState, **start: Any) -> JobEnded | None:
    facts: dict[str, Any] = {"given": None, "fresh": False, "command": "digest", "execution": 1}
    return end_to_report(state, **{**facts, "is_running": lambda _: False, **start})


@pytest.mark.parametrize(
    "end", [ended(), ended(JobStatus.CANCELED), ended(savepoint="/sp")], ids=str
)
def test_a_dirty_result_is_reported_to_the_command_of_the_dead_driver(end: JobEnded) -> None:
    state = after(started(), end)
    assert reported(state) == end
    assert reported(state, command="another program, or other arguments") is None
    assert reported(state, fresh=True) is None
    assert reported(state, given=Path("/sp")) is None


def test_a_living_process_reports_the_end_itself() -> None:
    seen: list[DriverProcess] = []

    def is_running(process: DriverProcess) -> bool:
        seen.append(process)
        return True

    assert reported(after(started(), ended()), is_running=is_running) is None
    assert seen == [DRIVER]


def test_executions_that_the_dead_driver_had_not_started_are_run() -> None:
    state = after(started(), ended())
    assert [reported(state, execution=n) is not None for n in (1, 2, 3)] == [True, True, False]


def test_the_same_command_with_the_same_snapshot_is_reported() -> None:
    state = after(started(given="/sp"), ended())
    assert reported(state, given=Path("/sp"))
    assert reported(state, given=Path("/other")) is None


def test_clean_results_results_of_old_versions_and_failures_are_not_reported() -> None:
    assert reported(after(started(), ended(driver=None))) is None
    assert reported(after(started(), ended(), ResultClean("a1", 3.0))) is None
    assert reported(after(started(), ended(JobStatus.FAILED))) is None
    assert reported(after(started())) is None
    assert reported(after()) is None


def test_a_start_that_fails_leaves_the_result_as_it_was() -> None:
    dirty = after(started(), ended(), started("a2"), StartFailed("a2", 3.0))
    assert reported(dirty) == ended()


def test_a_stopped_job_is_refused_unless_the_user_says_where_it_starts() -> None:
    state = after(started(), ended(savepoint="/save points/1", driver=None))
    with pytest.raises(StoppedJobError) as refused:
        refuse_stopped(state, "orders", "jobs/orders.py", given=None, fresh=False)
    lines = str(refused.value).splitlines()
    assert "  penstock run -s '/save points/1' jobs/orders.py" in lines
    assert "  penstock run --fresh jobs/orders.py" in lines
    refuse_stopped(state, "orders", None, given=Path("/sp"), fresh=False)
    refuse_stopped(state, "orders", None, given=None, fresh=True)
    refuse_stopped(after(started(), ended()), "orders", None, given=None, fresh=False)
    refuse_stopped(after(started()), "orders", None, given=None, fresh=False)
