"""Decides what a start does about a job that has ended before."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from penstock.checkpoint.storage.journal_entries import DriverProcess, JobEnded, JournalState
from penstock.common.storage_url import Location
from penstock.errors import StoppedJobError
from penstock.recovery.restore_candidates import was_given


def end_to_report(
    state: JournalState,
    *,
    given: Location | None,
    fresh: bool,
    command: str,
    execution: int,
    is_running: Callable[[DriverProcess], bool],
) -> JobEnded | None:
    """Return the end of the job that this start has to report instead of running the job.

    That is one whose driver died before it had reported it, so that the same command was started
    again. The driver of another command, a new snapshot or `fresh` ask for another run; and as
    long as the process that ended the job is alive, it reports the end itself. `execution` counts
    the executions of the job in this process: those that the dead driver had not started are run.
    """
    ended = state.ended
    if ended is None or not state.is_over or fresh:
        return None
    if given is not None and not was_given(state, given):
        return None
    driver = ended.driver
    if driver is None or driver.command != command or execution > driver.execution:
        return None
    return None if is_running(driver) else ended


def refuse_stopped(
    state: JournalState, job: str, program: str | None, *, given: Location | None, fresh: bool
) -> None:
    """Refuse to start a job from scratch that was stopped in order to be resumed.

    Raises:
        StoppedJobError: the job ended with a savepoint, and the user has not said what to do.
    """
    ended = state.ended
    if ended is None or ended.savepoint is None or fresh or given is not None:
        return
    resume = run_command(program, "-s", ended.savepoint)
    raise StoppedJobError(job, resume, run_command(program, "--fresh"))


def run_command(program: str | None, *options: str) -> str:
    """Return the command line that starts a program; without arguments, which may be secret."""
    return shlex.join(["penstock", "run", *options, program or "PROGRAM"])
