"""Ids of task managers, which are Spark's executors."""

from __future__ import annotations

from penstock.serve.jobs.cached_job import JobView


def task_manager_id(job: JobView, executor: str) -> str:
    """Return the id of an executor of a job: other jobs have executors of the same ids."""
    return f"{job.overview.id}-{executor}"
