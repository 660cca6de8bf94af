"""The statuses of jobs in Flink's terms."""

from __future__ import annotations

from penstock.serve.jobs.cached_job import JobView

_FLINK = {"STOPPED": "FINISHED", "DIED": "SUSPENDED", "DAMAGED": "SUSPENDED"}
_ENDED = ("FINISHED", "CANCELED", "FAILED")


def flink_status(job: JobView) -> str:
    """Return the status of a job, one that Flink's clients know."""
    status = job.overview.status
    return _FLINK.get(status, status)


def is_ended(job: JobView) -> bool:
    """Whether the job has ended for good."""
    return flink_status(job) in _ENDED


def millis(seconds: float | None) -> int:
    """Return a time or duration in milliseconds, -1 for what is not known."""
    return -1 if seconds is None else round(seconds * 1000)
