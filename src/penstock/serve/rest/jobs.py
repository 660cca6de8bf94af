"""Jobs: lists of them, and one of them with its vertices."""

from __future__ import annotations

import time
from typing import Any

from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.rest.found_jobs import job_of
from penstock.serve.rest.statuses import flink_status, is_ended, millis

_TASK_STATUSES = (
    "created",
    "scheduled",
    "deploying",
    "running",
    "finished",
    "canceling",
    "canceled",
    "failed",
    "reconciling",
    "initializing",
)


def ids(call: Call) -> dict[str, Any]:
    """Return the ids and statuses of all jobs."""
    jobs = call.context.jobs.jobs()
    return {"jobs": [{"id": hex_id(j.overview.id), "status": flink_status(j)} for j in jobs]}


def overview(call: Call) -> dict[str, Any]:
    """Return all jobs in a few words each."""
    now = time.time()
    return {"jobs": [overview_of(job, now) for job in call.context.jobs.jobs()]}


def overview_of(job: JobView, now: float) -> dict[str, Any]:
    """Return one job in a few words: Flink's fields, then ours."""
    start, end = times_of(job)
    shown = job.overview
    return {
        "jid": hex_id(shown.id),
        "name": shown.name,
        "jobType": "STREAMING",
        "schedulerType": "Default",
        "start-time": start,
        "end-time": end,
        "duration": duration_of(job, now),
        "state": flink_status(job),
        "last-modification": start if end < 0 else end,
        "tasks": tasks_of(job),
        "penstock-id": shown.id,
        "penstock-status": shown.status,
        "penstock-path": shown.path,
        "attempts": shown.attempts,
        "driver": shown.driver,
        "last-checkpoint": shown.last_checkpoint,
        "unreadable": shown.unreadable,
    }


def detail(call: Call) -> dict[str, Any]:
    """Return one job with its vertices."""
    _, job = job_of(call)
    return detail_of(job, time.time())


def detail_of(job: JobView, now: float) -> dict[str, Any]:
    """Return one job: Flink's fields, then ours."""
    start, end = times_of(job)
    shown = job.overview
    return {
        "jid": hex_id(shown.id),
        "name": shown.name,
        "isStoppable": False,
        "state": flink_status(job),
        "job-type": "STREAMING",
        "schedulerType": "Default",
        "start-time": start,
        "end-time": end,
        "duration": duration_of(job, now),
        "maxParallelism": -1,
        "now": millis(now),
        "timestamps": {},
        "vertices": [],
        "status-counts": {},
        "plan": {"jid": hex_id(shown.id), "name": shown.name, "type": "STREAMING", "nodes": []},
        "penstock-id": shown.id,
        "penstock-status": shown.status,
        "penstock-path": shown.path,
        "attempts": shown.attempts,
        "driver": shown.driver,
        "last-checkpoint": shown.last_checkpoint,
        "unreadable": shown.unreadable,
    }


def times_of(job: JobView) -> tuple[int, int]:
    """Return when a job was started first, and when it ended or -1, in milliseconds."""
    ended = None if job.state is None else job.state.ended
    start = None if job.state is None or not job.state.attempts else job.state.attempts[0].time
    if start is None and job.facts is not None:
        start = job.facts.created
    end = ended.time if ended is not None and is_ended(job) else None
    return millis(start), millis(end)


def duration_of(job: JobView, now: float) -> int:
    """Return how long a job has been there, up to its end, in milliseconds."""
    start, end = times_of(job)
    return -1 if start < 0 else max(0, (millis(now) if end < 0 else end) - start)


def tasks_of(job: JobView) -> dict[str, int]:
    """Return how many subtasks of a job are in which status."""
    counts = dict.fromkeys(_TASK_STATUSES, 0)
    steps = [] if job.facts is None else job.facts.plan
    counts["running"] = sum(step.parallelism for step in steps)
    return {"total": sum(counts.values()), **counts}


ENDPOINTS = [
    Endpoint("GET", "/jobs", ids, "The ids and statuses of all jobs"),
    Endpoint("GET", "/jobs/overview", overview, "All jobs in a few words each"),
    Endpoint("GET", "/jobs/:jobid", detail, "One job with its vertices and its plan"),
]
