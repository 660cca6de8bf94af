"""Decides what a submitted job is started from when it is started again."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.common.job_status import JobStatus
from penstock.errors import RestartRefusedError
from penstock.serve.submission.records import StartRequest


@dataclass(frozen=True, slots=True)
class Restore:
    """What the next start gets besides the settings: neither resumes from the newest checkpoint."""

    path: str | None = None
    fresh: bool = False


def decide_restart(
    job: JobDir, state: JournalState, last: StartRequest | None, *, path: str | None, fresh: bool
) -> Restore:
    """Decide from the journal, the last start and what the user asks for.

    As with `penstock run`, a job that died or failed resumes from its newest checkpoint, and one
    that was stopped from its savepoint. A job that is over never reads its input again, unless the
    user says so.

    Raises:
        RestartRefusedError: the job is over and has left nothing to start from.
    """
    if path is not None or fresh:
        return Restore(path, fresh)
    attempt, ended = state.last_attempt, state.ended
    has_attempt = attempt is not None and (last is None or attempt.time >= last.time)
    if last is not None and not has_attempt and (last.restore_path is not None or last.fresh):
        # What the user asked for then has not happened.
        return Restore(last.restore_path, last.fresh)
    if not state.is_over or ended is None:
        return Restore()
    if ended.savepoint is not None:
        return Restore(ended.savepoint)
    if retained := [c for c in state.restorable if not c.savepoint]:
        return Restore(str(job.from_journal_path(retained[-1].path)))
    how = "was canceled" if ended.status is JobStatus.CANCELED else "has finished"
    reason = (
        f"it {how} and retains no checkpoint, so it would read its input again and emit its output "
        "again; name a savepoint, or ask for a start from scratch"
    )
    raise RestartRefusedError(job.key, reason)
