"""Attempts of a job, each with its recovery, its cause and the failures that ended it."""

from __future__ import annotations

import time
from typing import Any

from penstock.checkpoint.history import History
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.rest.found_jobs import job_of


def attempt_list(call: Call) -> dict[str, Any]:
    """Return the attempts of a job, newest first."""
    _, view = job_of(call)
    return {"now": time.time(), "attempts": shown_attempts(view)}


def shown_attempts(view: JobView, most: int | None = None) -> list[dict[str, Any]]:
    """Return the newest attempts, newest first."""
    state = view.state
    if state is None:
        return []
    history = History(view.directory.storage)
    recoveries = {recovery.attempt: recovery for recovery in history.recoveries()}
    exceptions = history.exceptions()
    newest = list(reversed(state.attempts))
    return [
        {
            "attempt": start.attempt,
            "started": start.time,
            "host": start.host,
            "pid": start.pid,
            "restored": start.restored,
            "restored_path": start.restored_path,
            "recovery": recoveries.get(start.attempt),
            "exceptions": [
                {
                    "time": failure.time,
                    "step": failure.step,
                    "message": failure.message,
                    "traceback": failure.traceback,
                }
                for failure in exceptions
                if failure.attempt == start.attempt
            ],
            "end": _end(view, at),
        }
        for at, start in enumerate(newest[:most])
    ]


def _end(view: JobView, age: int) -> str | None:
    ended = None if view.state is None else view.state.ended
    if age > 0 or ended is None:
        return None
    if ended.savepoint is not None:
        return f"The job was stopped with the savepoint {ended.savepoint}."
    return f"The job ended: {ended.status.name}."
