"""Log messages of a job's start and end: what it restores, and the next step."""

from __future__ import annotations

import logging

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.common.job_status import JobStatus
from penstock.common.storage_url import Location
from penstock.job.context import JobContext
from penstock.recovery.ended_jobs import run_command

logger = logging.getLogger("penstock.job")

_NO_DIRECTORY = "without a checkpoint directory"
_RESUMES = "with your other options and arguments resumes it"


def log_start(context: JobContext, state: JournalState, restored: Location | None) -> None:
    """Log which job starts, where its files are, and what it restores."""
    starts_over = restored is None and state.is_over and not context.fresh
    level = logging.WARNING if starts_over else logging.INFO
    place = f"directory {context.job_dir.path}"
    if context.checkpoints.directory is None:
        place = _NO_DIRECTORY
    job = f"Job {context.plan.job_name!r} (id {context.job_dir.key}, {place})"
    what = f"starts from scratch{_why_from_scratch(context, state)}"
    logger.log(level, "%s %s", job, what if restored is None else f"restores {restored}")


def _why_from_scratch(context: JobContext, state: JournalState) -> str:
    if context.fresh:
        return ", as penstock.recovery.fresh says"
    if state.ended is not None and state.is_over:
        how = "was canceled" if state.ended.status is JobStatus.CANCELED else "has finished"
        return f", because it {how} before: it reads its input again and emits its output again"
    return "" if not state.attempts else ": it has not completed a checkpoint yet"


def end_message(context: JobContext, state: JournalState) -> str:
    """Say how a job ended, and what to do next."""
    ended, program = state.ended, context.program.program
    how = "is suspended"
    if ended is not None and ended.savepoint is not None:
        how = "was stopped with a savepoint"
    elif ended is not None:
        how = {JobStatus.FINISHED: "has finished", JobStatus.CANCELED: "was canceled"}.get(
            ended.status, "has failed"
        )
    next_ = f"it ran {_NO_DIRECTORY}: the same command starts it from scratch"
    if context.checkpoints.directory is not None:
        next_ = next_step(state, context.job_dir, program)
    return f"Job {context.plan.job_name!r} {how}. Next: {next_}"


def next_step(state: JournalState, job_dir: JobDir, program: str | None) -> str:
    """Say how a job that has ended is resumed or started again."""
    ended = state.ended
    if ended is not None and ended.savepoint is not None:
        return f"{run_command(program, '-s', ended.savepoint)} {_RESUMES}"
    if not state.is_over:
        where = "from its newest checkpoint" if state.restorable else "from what it started from"
        return f"the same command resumes it {where}; --fresh starts it from scratch"
    given = None if state.last_attempt is None else state.last_attempt.given_path
    from_scratch = "the same command starts it from scratch"
    if given is not None:
        from_scratch = f"the same command restores {given} again"
        if not job_dir.has_metadata(given):
            from_scratch = f"{given} is deleted, the command without it starts it from scratch"
    retained = [c for c in state.restorable if not c.savepoint]
    if not retained:
        return from_scratch
    path = str(job_dir.from_journal_path(retained[-1].path))
    return f"{run_command(program, '-s', path)} {_RESUMES}; {from_scratch}"
