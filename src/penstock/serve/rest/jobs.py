"""Jobs: lists of them, and one of them with its vertices."""

from __future__ import annotations

import time
from typing import Any

from penstock.common.config.recovery_options import RESTART_STRATEGY
from penstock.common.configuration import Configuration
from penstock.serve.flink_json.failure_causes import failure_cause
from penstock.serve.flink_json.io_metrics import io_metrics, metrics_of, stage_figures
from penstock.serve.flink_json.plans import job_type, plan_of, stream_graph_of
from penstock.serve.flink_json.statuses import flink_status, is_ended, millis
from penstock.serve.flink_json.task_statuses import counts_of, status_counts, task_status, tasks_of
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.jobs.live import Live
from penstock.serve.jobs.vertices import vertices_of
from penstock.serve.rest.found_jobs import job_of

_APPLICATION = {"FINISHED": "SUCCEEDED", "CANCELED": "CANCELED", "FAILED": "FAILED"}
_STATES = (
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
)


def ids(call: Call) -> dict[str, Any]:
    """Return the ids and statuses of all jobs."""
    jobs = call.context.jobs.jobs()
    return {"jobs": [{"id": hex_id(j.overview.id), "status": flink_status(j)} for j in jobs]}


def overview(call: Call) -> dict[str, Any]:
    """Return all jobs in a few words each."""
    now = time.time()
    live = call.context.live
    return {"jobs": [overview_of(job, live.of(job), now) for job in call.context.jobs.jobs()]}


def overview_of(job: JobView, live: Live, now: float) -> dict[str, Any]:
    """Return one job in a few words: Flink's fields, then ours."""
    start, end = times_of(job)
    shown = job.overview
    return {
        "jid": hex_id(shown.id),
        "name": shown.name,
        "jobType": job_type(job),
        "schedulerType": "Default",
        "start-time": start,
        "end-time": end,
        "duration": duration_of(job, now),
        "state": flink_status(job, live),
        "last-modification": start if end < 0 else end,
        "tasks": tasks_of(job),
        "pending-operators": 0,
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
    return detail_of(job, call.context.live.of(job), time.time())


def detail_of(job: JobView, live: Live, now: float) -> dict[str, Any]:
    """Return one job: Flink's fields, then ours."""
    start, end = times_of(job)
    shown = job.overview
    duration = duration_of(job, now)
    vertices = [
        {
            "id": vertex.id,
            "slotSharingGroupId": hex_id(f"slots of {shown.id}"),
            "name": vertex.name,
            "maxParallelism": vertex.max_parallelism,
            "parallelism": vertex.parallelism,
            "status": task_status(job),
            "start-time": started_of(job),
            "end-time": end,
            "duration": duration,
            "tasks": counts_of(job, vertex),
            "metrics": io_metrics(
                metrics_of(stage_figures(live.figures, vertex.stage), vertex.parallelism)
            ),
            "penstock-uid": vertex.uid,
            "penstock-stage": vertex.stage,
        }
        for vertex in vertices_of(job.facts)
    ]
    return {
        "jid": hex_id(shown.id),
        "name": shown.name,
        "isStoppable": False,
        "state": flink_status(job, live),
        "job-type": job_type(job),
        "schedulerType": "Default",
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "maxParallelism": max((v.max_parallelism for v in vertices_of(job.facts)), default=-1),
        "now": millis(now),
        "timestamps": timestamps_of(job),
        "vertices": vertices,
        "status-counts": status_counts(job),
        "plan": plan_of(job),
        "stream-graph": stream_graph_of(job),
        "pending-operators": 0,
        "penstock-live-stale": live.is_stale,
        "penstock-live-time": None if live.figures is None else live.figures.time,
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


def started_of(job: JobView) -> int:
    """Return when the newest attempt started, in milliseconds."""
    return millis(job.overview.started)


def timestamps_of(job: JobView) -> dict[str, int]:
    """Return when a job got into its states; 0 for those that it was not in, as Flink says it."""
    start, end = times_of(job)
    times = dict.fromkeys(_STATES, 0)
    times["INITIALIZING"] = times["CREATED"] = max(0, start)
    times["RUNNING"] = max(0, started_of(job))
    if end >= 0:
        times[flink_status(job)] = end
    return times


def duration_of(job: JobView, now: float) -> int:
    """Return how long a job has been there, up to its end, in milliseconds."""
    start, end = times_of(job)
    return -1 if start < 0 else max(0, (millis(now) if end < 0 else end) - start)


def status(call: Call) -> dict[str, Any]:
    """Return the status of one job."""
    _, job = job_of(call)
    return {"status": flink_status(job, call.context.live.of(job))}


def plan(call: Call) -> dict[str, Any]:
    """Return the plan of one job."""
    _, job = job_of(call)
    return {"plan": plan_of(job)}


def config(call: Call) -> dict[str, Any]:
    """Return the execution settings of one job."""
    _, job = job_of(call)
    settings = Configuration() if job.facts is None else Configuration.from_dict(job.facts.settings)
    steps = [] if job.facts is None else job.facts.plan
    return {
        "jid": hex_id(job.overview.id),
        "name": job.overview.name,
        "execution-config": {
            "restart-strategy": str(settings.get(RESTART_STRATEGY, "Cluster level default")),
            "job-parallelism": max((step.parallelism for step in steps), default=-1),
            "object-reuse-mode": False,
            "user-config": settings.to_dict(),
        },
        "penstock-program": None if job.facts is None else job.facts.program,
        "penstock-arguments": [] if job.facts is None else job.facts.args,
    }


def execution_result(call: Call) -> dict[str, Any]:
    """Return how one job ended, once it has."""
    cached, job = job_of(call)
    if not is_ended(job):
        return {"status": {"id": "IN_PROGRESS"}}
    start, end = times_of(job)
    result: dict[str, Any] = {
        "id": hex_id(job.overview.id),
        "name": job.overview.name,
        "application-status": _APPLICATION[flink_status(job)],
        "accumulator-results": {},
        "net-runtime": max(0, end - start),
        "start-time": start,
        "end-time": end,
    }
    if flink_status(job) == "FAILED":
        failures = cached.exceptions()
        last = failures[0] if failures else None
        result["failure-cause"] = failure_cause(
            "the job failed" if last is None else last.message,
            "" if last is None else last.traceback,
        )
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


ENDPOINTS = [
    Endpoint("GET", "/jobs", ids, "The ids and statuses of all jobs"),
    Endpoint("GET", "/jobs/overview", overview, "All jobs in a few words each"),
    Endpoint("GET", "/jobs/:jobid", detail, "One job with its vertices and its plan"),
    Endpoint("GET", "/jobs/:jobid/status", status, "The status of one job"),
    Endpoint("GET", "/jobs/:jobid/plan", plan, "The plan of one job"),
    Endpoint("GET", "/jobs/:jobid/config", config, "The settings of one job"),
    Endpoint("GET", "/jobs/:jobid/execution-result", execution_result, "How one job ended"),
]
