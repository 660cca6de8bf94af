"""Accumulators: the counters of a job's functions.

They are totals: those of a driver that does not report any more are shown with a mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.common.metric_values import MetricInfo
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.rest.found_jobs import job_of, number_of, subtask_of, vertex_of
from penstock.serve.rest.vertices import LIVE_WAIT_S, subtasks


def of_job(call: Call) -> dict[str, Any]:
    """Return the counters of all functions of a job."""
    _, job = job_of(call)
    live = call.context.live.of(job, LIVE_WAIT_S)
    figures = live.figures
    return {
        "job-accumulators": [],
        "user-task-accumulators": _counters([] if figures is None else figures.user),
        "serialized-user-task-accumulators": {},
        "penstock-live-stale": live.is_stale,
    }


def of_vertex(call: Call) -> dict[str, Any]:
    """Return the counters of the functions of a vertex."""
    _, job, vertex = vertex_of(call)
    live = call.context.live.of(job, LIVE_WAIT_S)
    figures = live.figures
    own = {step.uid for step in vertex.steps}
    found = [] if figures is None else [info for info in figures.user if info.step_uid in own]
    return {
        "id": vertex.id,
        "user-accumulators": _counters(found),
        "penstock-live-stale": live.is_stale,
    }


def of_subtasks(call: Call) -> dict[str, Any]:
    """Return the subtasks of a vertex: counters are kept for all of them together."""
    _, job, vertex = vertex_of(call)
    found = subtasks(job, vertex, call.context.live.of(job), 0.0)
    shown = [
        {
            "subtask": one["subtask"],
            "attempt": one["attempt"],
            "endpoint": one["endpoint"],
            "user-accumulators": [],
        }
        for one in found
    ]
    return {"id": vertex.id, "parallelism": vertex.parallelism, "subtasks": shown}


def of_attempt(call: Call) -> dict[str, Any]:
    """Return the current attempt of a subtask: counters are kept for all of them together."""
    _, job, vertex, index = subtask_of(call)
    attempt = subtasks(job, vertex, call.context.live.of(job), 0.0)[index]["attempt"]
    if number_of(call, "attempt") != attempt:
        raise RestError(404, f"Nothing is recorded of attempt {call.path['attempt']}")
    return {"subtask": index, "attempt": attempt, "id": vertex.id, "user-accumulators": []}


def _counters(infos: Iterable[MetricInfo]) -> list[dict[str, str]]:
    return [
        {"name": f"{info.step}.{info.name}", "type": "LongCounter", "value": str(info.count or 0)}
        for info in infos
        if info.kind == "counter"
    ]


_VERTEX = "/jobs/:jobid/vertices/:vertexid"
ENDPOINTS = [
    Endpoint(
        "GET",
        "/jobs/:jobid/accumulators",
        of_job,
        "The counters of a job's functions",
        query=("includeSerializedValue",),
    ),
    Endpoint("GET", f"{_VERTEX}/accumulators", of_vertex, "The counters of a vertex"),
    Endpoint("GET", f"{_VERTEX}/subtasks/accumulators", of_subtasks, "The subtasks of a vertex"),
    Endpoint(
        "GET",
        f"{_VERTEX}/subtasks/:subtaskindex/attempts/:attempt/accumulators",
        of_attempt,
        "One attempt of a subtask",
    ),
]
