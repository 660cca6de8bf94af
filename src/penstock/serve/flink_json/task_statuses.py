"""The statuses of vertices and subtasks: those of their job, in Flink's terms of execution."""

from __future__ import annotations

from typing import Any

from penstock.serve.flink_json.statuses import flink_status
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.vertices import Vertex, vertices_of

EXECUTION_STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
    "INITIALIZING",
)
_OF_JOB = {
    "RUNNING": "RUNNING",
    "INITIALIZING": "INITIALIZING",
    "RESTARTING": "SCHEDULED",
    "FINISHED": "FINISHED",
    "CANCELED": "CANCELED",
    "FAILED": "FAILED",
    "SUSPENDED": "CANCELED",
}


def task_status(job: JobView) -> str:
    """Return the status of a job's subtasks: the driver starts and ends all of them together."""
    return _OF_JOB.get(flink_status(job), "RUNNING")


def counts_of(job: JobView, vertex: Vertex) -> dict[str, int]:
    """Return how many subtasks of a vertex are in which status."""
    counts = dict.fromkeys(EXECUTION_STATES, 0)
    counts[task_status(job)] = vertex.parallelism
    return counts


def tasks_of(job: JobView) -> dict[str, int]:
    """Return how many subtasks of a job are in which status."""
    total = sum(vertex.parallelism for vertex in vertices_of(job.facts))
    counts = dict.fromkeys((state.lower() for state in EXECUTION_STATES), 0)
    counts[task_status(job).lower()] = total
    return {"total": total, **counts}


def status_counts(job: JobView) -> dict[str, Any]:
    """Return how many vertices of a job are in which status."""
    counts = dict.fromkeys(EXECUTION_STATES, 0)
    counts[task_status(job)] = len(vertices_of(job.facts))
    return counts
