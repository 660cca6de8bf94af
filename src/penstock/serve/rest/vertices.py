"""The vertices of a job, its stages: their subtasks, backpressure and watermarks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from penstock.common.live_figures import SubtaskFigures
from penstock.ids import attempt_number
from penstock.serve.flink_json.io_metrics import by_subtask, io_metrics, stage_figures
from penstock.serve.flink_json.percentiles import task_summary
from penstock.serve.flink_json.statuses import millis
from penstock.serve.flink_json.task_managers import task_manager_id
from penstock.serve.flink_json.task_statuses import EXECUTION_STATES, task_status
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.live import Live
from penstock.serve.jobs.vertices import Vertex
from penstock.serve.rest.found_jobs import number_of, subtask_of, vertex_of
from penstock.serve.rest.jobs import started_of, times_of

LIVE_WAIT_S = 1.5
"""How long a call waits for the first figures of a driver that nobody has watched yet."""
_METRICS = (
    "read-bytes",
    "write-bytes",
    "read-records",
    "write-records",
    "accumulated-backpressured-time",
    "accumulated-idle-time",
    "accumulated-busy-time",
)
_SHOWN_DURATIONS = ("CREATED", "SCHEDULED", "INITIALIZING", "DEPLOYING", "RUNNING")
_UNASSIGNED = "(unassigned)"
_OK, _LOW = 0.10, 0.5
_BLOCKED = "backPressuredTimeMsPerSecond"


def detail(call: Call) -> dict[str, Any]:
    """Return one vertex with its subtasks."""
    _, job, vertex = vertex_of(call)
    live = call.context.live.of(job)
    now = time.time()
    found = subtasks(job, vertex, live, now)
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": millis(now),
        "subtasks": found,
        "aggregated": aggregated(found),
        "penstock-uid": vertex.uid,
        "penstock-stage": vertex.stage,
        "penstock-live-stale": live.is_stale,
    }


def subtask(call: Call) -> dict[str, Any]:
    """Return one subtask in its current attempt."""
    _, job, vertex, index = subtask_of(call)
    return subtasks(job, vertex, call.context.live.of(job), time.time())[index]


def subtask_attempt(call: Call) -> dict[str, Any]:
    """Return one subtask in its current attempt, if it is that of the path."""
    _, job, vertex, index = subtask_of(call)
    found = subtasks(job, vertex, call.context.live.of(job), time.time())[index]
    if number_of(call, "attempt") != found["attempt"]:
        raise RestError(404, f"Nothing is recorded of attempt {call.path['attempt']}")
    return found


def times(call: Call) -> dict[str, Any]:
    """Return when the subtasks of a vertex got into their states."""
    _, job, vertex = vertex_of(call)
    now = time.time()
    states = dict.fromkeys(EXECUTION_STATES, 0)
    states["CREATED"] = states["SCHEDULED"] = states["RUNNING"] = max(0, started_of(job))
    found = subtasks(job, vertex, call.context.live.of(job), now)
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": millis(now),
        "subtasks": [
            {
                "subtask": one["subtask"],
                "endpoint": one["endpoint"],
                "duration": one["duration"],
                "timestamps": states,
            }
            for one in found
        ],
    }


def task_managers(call: Call) -> dict[str, Any]:
    """Return the subtasks of a vertex by the executor where they run."""
    _, job, vertex = vertex_of(call)
    now = time.time()
    live = call.context.live.of(job)
    figures = by_subtask(stage_figures(live.figures, vertex.stage))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in subtasks(job, vertex, live, now):
        groups.setdefault((one["endpoint"], one["taskmanager-id"]), []).append(one)
    shown = []
    for (endpoint, id_), found in groups.items():
        indexes = [one["subtask"] for one in found if one["subtask"] in figures]
        counts = dict.fromkeys(EXECUTION_STATES, 0)
        counts[task_status(job)] = len(found)
        shown.append(
            {
                "endpoint": endpoint,
                "status": task_status(job),
                "start-time": found[0]["start-time"],
                "end-time": found[0]["end-time"],
                "duration": found[0]["duration"],
                "metrics": io_metrics(figures[i].metrics for i in indexes),
                "status-counts": counts,
                "taskmanager-id": id_,
                "aggregated": aggregated(found),
            }
        )
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": millis(now),
        "taskmanagers": shown,
        "penstock-live-stale": live.is_stale,
    }


def backpressure(call: Call) -> dict[str, Any]:
    """Return how much the subtasks of a vertex wait for those downstream of them."""
    _, job, vertex = vertex_of(call)
    live = call.context.live.of(job, LIVE_WAIT_S)
    figures = stage_figures(live.figures, vertex.stage)
    known = [] if figures is None else [s for s in figures.subtasks if _BLOCKED in s.metrics]
    if live.is_stale or not known or live.figures is None:
        return {
            "status": "deprecated",
            "backpressureLevel": None,
            "end-timestamp": None,
            "subtasks": None,
            "backpressure-level": None,
        }
    found: list[dict[str, Any]] = [
        {
            "subtask": s.subtask,
            "attempt-number": None,
            "ratio": _ratio(s.metrics, _BLOCKED),
            "idleRatio": _ratio(s.metrics, "idleTimeMsPerSecond"),
            "busyRatio": _ratio(s.metrics, "busyTimeMsPerSecond"),
        }
        for s in sorted(known, key=lambda s: s.subtask)
    ]
    worst = _level(max(one["ratio"] or 0.0 for one in found))
    for one in found:
        one["backpressureLevel"] = one["backpressure-level"] = _level(one["ratio"] or 0.0)
    return {
        "status": "ok",
        "backpressureLevel": worst,
        "backpressure-level": worst,
        "end-timestamp": millis(live.figures.time),
        "subtasks": found,
    }


def watermarks(call: Call) -> list[dict[str, str]]:
    """Return the watermarks at the subtasks of a vertex; none if its driver does not report."""
    _, job, vertex = vertex_of(call)
    live = call.context.live.of(job, LIVE_WAIT_S)
    if live.is_stale:
        return []
    figures = by_subtask(stage_figures(live.figures, vertex.stage))
    name = "currentInputWatermark"
    return [
        {"id": f"{index}.{name}", "value": str(round(one.metrics[name]))}
        for index, one in sorted(figures.items())
        if name in one.metrics
    ]


def subtasks(job: JobView, vertex: Vertex, live: Live, now: float) -> list[dict[str, Any]]:
    """Return the subtasks of a vertex, with where they ran last as far as that is known."""
    figures = by_subtask(stage_figures(live.figures, vertex.stage))
    attempt = attempt_number(job.overview.attempt or "") or 1
    _, end = times_of(job)
    start = started_of(job)
    duration = -1 if start < 0 else max(0, (millis(now) if end < 0 else end) - start)
    durations = dict.fromkeys(_SHOWN_DURATIONS, 0) | {"RUNNING": max(0, duration)}
    found = []
    for index in range(vertex.parallelism):
        one = figures.get(index)
        found.append(
            {
                "subtask": index,
                "status": task_status(job),
                "attempt": attempt - 1,
                "endpoint": one.host if one is not None and one.host else _UNASSIGNED,
                "start-time": start,
                "start_time": start,
                "end-time": end,
                "duration": duration,
                "metrics": io_metrics([{} if one is None else one.metrics]),
                "taskmanager-id": _task_manager(job, one),
                "status-duration": durations,
                "penstock-attempt": job.overview.attempt,
                "penstock-live-stale": live.is_stale,
            }
        )
    return found


def aggregated(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return statistics over subtasks."""
    return {
        "metrics": {n: task_summary(one["metrics"][n] for one in found) for n in _METRICS},
        "status-duration": {
            state: task_summary(one["status-duration"][state] for one in found)
            for state in _SHOWN_DURATIONS
        },
    }


def _task_manager(job: JobView, figures: SubtaskFigures | None) -> str:
    if figures is None or not figures.executor:
        return _UNASSIGNED
    return task_manager_id(job, figures.executor)


def _ratio(metrics: dict[str, float], name: str) -> float | None:
    return metrics[name] / 1000 if name in metrics else None


def _level(ratio: float) -> str:
    if ratio <= _OK:
        return "ok"
    return "low" if ratio <= _LOW else "high"


_VERTEX = "/jobs/:jobid/vertices/:vertexid"
_SUBTASK = f"{_VERTEX}/subtasks/:subtaskindex"
ENDPOINTS = [
    Endpoint("GET", _VERTEX, detail, "One vertex with its subtasks"),
    Endpoint("GET", f"{_VERTEX}/subtasktimes", times, "When subtasks changed their state"),
    Endpoint("GET", f"{_VERTEX}/taskmanagers", task_managers, "A vertex by task manager"),
    Endpoint("GET", f"{_VERTEX}/backpressure", backpressure, "Backpressure of a vertex"),
    Endpoint("GET", f"{_VERTEX}/watermarks", watermarks, "Watermarks of a vertex"),
    Endpoint("GET", _SUBTASK, subtask, "One subtask"),
    Endpoint("GET", f"{_SUBTASK}/attempts/:attempt", subtask_attempt, "One attempt of a subtask"),
]
