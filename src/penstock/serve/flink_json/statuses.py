"""The statuses of jobs in Flink's terms."""

from __future__ import annotations

from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.live import Live

_FLINK = {"STOPPED": "FINISHED", "DIED": "SUSPENDED", "DAMAGED": "SUSPENDED"}
_RESTARTED_WITHIN_S = 300.0
_ENDED = ("FINISHED", "CANCELED", "FAILED")


def flink_status(job: JobView, live: Live | None = None) -> str:
    """Return the status of a job, one that Flink's clients know.

    Only the live figures say that a driver waits before it restarts the job itself.
    """
    status = job.overview.status
    if status == "DIED" and _is_restarted(job):
        return "RESTARTING"
    if status == "RUNNING" and live is not None and not live.is_stale:
        return "RUNNING" if live.figures is None else live.figures.status
    return _FLINK.get(status, status)


def _is_restarted(job: JobView) -> bool:
    """Whether a supervisor probably starts the driver again; if it lived, it would have by then."""
    driver = job.overview.driver
    is_supervised = job.facts is not None and job.facts.supervised
    return is_supervised and driver is not None and job.time - driver.heard < _RESTARTED_WITHIN_S


def is_ended(job: JobView) -> bool:
    """Whether the job has ended for good."""
    return flink_status(job) in _ENDED


def millis(seconds: float | None) -> int:
    """Return a time or duration in milliseconds, -1 for what is not known."""
    return -1 if seconds is None else round(seconds * 1000)
