"""The list of jobs, and all that the overview of one job shows."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import msgspec

from penstock import __version__
from penstock.common.live_figures import LiveFigures
from penstock.recovery.lease import Alive
from penstock.serve.dashboard.advice_page import recommended_interval
from penstock.serve.dashboard.attempt_pages import shown_attempts
from penstock.serve.dashboard.checkpoint_pages import brief, full
from penstock.serve.dashboard.planned_graph import shown_graph
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import CachedJob, JobView
from penstock.serve.jobs.live import Live
from penstock.serve.rest.checkpoints import settings_of
from penstock.serve.rest.found_jobs import job_of

_RECENT = 20
_ATTEMPTS = 3
_SENT = "numRecordsSendPerSecond"
"""Of a sink, whose records are no output of its stage."""
_STARTED = time.time()
_NOT_LIVE = Live(None, True)


def job_list(call: Call) -> dict[str, Any]:
    """Return all jobs with what the list shows."""
    context, now = call.context, time.time()
    jobs = []
    for view in context.jobs.jobs():
        live = context.live.of(view) if isinstance(view.driver, Alive) else _NOT_LIVE
        jobs.append({**_job(view, live.figures), **_rates(live)})
    return {"now": now, "directory": str(context.jobs.directory), "jobs": jobs}


def job_overview(call: Call) -> dict[str, Any]:
    """Return what the overview of one job shows, with its live figures."""
    job, view = job_of(call)
    found = call.context.live.of(view)
    live = found.figures
    now = time.time()
    checkpoints = job.checkpoints()[:_RECENT]
    newest = next((c for c in checkpoints if c.status.value == "COMPLETED"), None)
    shown = [brief(record, view) for record in reversed(checkpoints)]
    for record in shown:
        if newest is not None and record["id"] == newest.id:
            record["slowest"] = full(newest, view)
    return {
        "now": now,
        "job": {**_job(view, live), **_last_duration(job, view)},
        "plan": shown_graph([] if view.facts is None else view.facts.plan),
        "live": None if live is None else _shown_figures(live),
        "is_stale": found.is_stale,
        "checkpoints": shown,
        "attempts": shown_attempts(view, _ATTEMPTS),
        "server": _server(call),
        "advice": {"interval_s": recommended_interval(view)},
    }


def _job(view: JobView, live: LiveFigures | None) -> dict[str, Any]:
    shown = view.overview
    state = view.state
    last = shown.last_checkpoint
    ended = None if state is None or shown.status == "DIED" else state.ended
    # Of jobs that do not run nobody waits for the next checkpoint: a long list is quick.
    settings = settings_of(view) if isinstance(view.driver, Alive) else None
    is_restarting = (
        shown.status == "RUNNING" and live is not None and live.status == "RESTARTING"
    ) and live.attempt == shown.attempt
    return {
        "id": shown.id,
        "name": shown.name,
        "status": "RESTARTING" if is_restarting else shown.status,
        "path": shown.path,
        "driver": shown.driver,
        "attempt": shown.attempt,
        "started": shown.started,
        "ended": None if ended is None else ended.time,
        "savepoint": None if ended is None else ended.savepoint,
        "restarts": max(0, shown.attempts - 1),
        "last_checkpoint": None
        if last is None
        else {
            "id": last.id,
            "completed": last.completed,
            "new_bytes": last.new_bytes,
            "full_bytes": last.full_bytes,
            "discarded": last.discarded,
        },
        "interval_s": None if settings is None else settings.interval_s,
        "program": None if view.facts is None else view.facts.program,
        "supervised": False if view.facts is None else view.facts.supervised,
        "unreadable": shown.unreadable,
    }


def _last_duration(job: CachedJob, view: JobView) -> dict[str, Any]:
    shown: dict[str, Any] | None = _job(view, None)["last_checkpoint"]
    if shown is None:
        return {}
    record = job.checkpoint(shown["id"])
    duration = None if record is None else record.duration_s
    return {"last_checkpoint": {**shown, "duration_s": duration}}


def _rates(found: Live) -> dict[str, Any]:
    """Return what the sources read and the last stages write, per second."""
    live = found.figures
    if live is None:
        return {"records_in_per_s": None, "records_out_per_s": None, "is_stale": True}
    consumed = {channel.producer_uid for channel in live.channels}
    read, written = list[float](), list[float]()
    for stage in live.stages:
        for subtask in stage.subtasks:
            sent = subtask.metrics.get("numRecordsOutPerSecond")
            received = subtask.metrics.get("numRecordsInPerSecond", sent)
            if stage.is_source and received is not None:
                read.append(received)
        if not consumed.intersection(stage.uids) and stage.operators:
            for metrics in stage.operators[-1].subtasks.values():
                written.append(metrics.get(_SENT, metrics.get("numRecordsOutPerSecond", 0.0)))
    return {
        "records_in_per_s": sum(read) if read else None,
        "records_out_per_s": sum(written) if written else None,
        "is_stale": found.is_stale,
        "live_time": live.time,
    }


def _shown_figures(figures: LiveFigures) -> dict[str, Any]:
    """Return figures under the names that the code has: some have older names in files."""
    channels = [msgspec.structs.asdict(channel) for channel in figures.channels]
    return {**msgspec.structs.asdict(figures), "channels": channels}


def _server(call: Call) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _STARTED,
        "version": __version__,
        "directory": str(call.context.jobs.directory),
    }
