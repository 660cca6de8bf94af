"""Finds the job, vertex or checkpoint that the path of a call names."""

from __future__ import annotations

from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import CachedJob, JobView


def job_of(call: Call) -> tuple[CachedJob, JobView]:
    """Return the job in the path of a call, as it is now.

    Raises:
        RestError: there is none with this id.
    """
    id_ = call.path["jobid"]
    found = call.context.jobs.find(id_)
    if found is None:
        raise RestError(404, f"Job {id_} not found")
    return found
