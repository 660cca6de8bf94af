"""Checkpoints of a job: the list with counts and settings, and one with all its subtasks."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, History
from penstock.client.job_overview import ShownCheckpoint, is_savepoint
from penstock.common.text.elapsed import duration
from penstock.recovery.lease import Alive
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.rest.checkpoints import settings_of
from penstock.serve.rest.found_jobs import LONGEST_NUMBER, job_of


def checkpoint_list(call: Call) -> dict[str, Any]:
    """Return all checkpoints in the history, oldest first, in a few words each."""
    job, view = job_of(call)
    records = [brief(record, view) for record in reversed(job.checkpoints())]
    recoveries = History(view.directory.storage).recoveries()
    restored = recoveries[-1] if recoveries else None
    return {
        "now": time.time(),
        "checkpoints": records,
        "counts": {
            **{
                status.value.lower(): sum(r["status"] == status for r in records)
                for status in CheckpointStatus
            },
            "restored": len(recoveries),
        },
        "restored": restored,
        "config": _configuration(view),
    }


def one_checkpoint(call: Call) -> dict[str, Any]:
    """Return one checkpoint with the statistics of its subtasks and its event log."""
    job, view = job_of(call)
    number = call.path["checkpointid"]
    is_number = number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER
    record = job.checkpoint(int(number)) if is_number else None
    if record is None:
        raise RestError(404, f"Checkpoint {number} is not in the history of the job")
    return {"now": time.time(), **full(record, view)}


def brief(record: CheckpointStats, view: JobView) -> dict[str, Any]:
    """Return a checkpoint without its subtasks and events."""
    record = _as_ended(record, view)
    steps = [] if view.facts is None else view.facts.plan
    heads = {operator.uid for operator in record.operators if operator.stats}
    acknowledged = sum(len(operator.stats) for operator in record.operators)
    # Only the heads of stages have statistics; those that have not acknowledged are not there.
    stages = {step.stage for step in steps if step.uid in heads}
    waiting: dict[int, int] = {}
    if record.status is not CheckpointStatus.COMPLETED:
        waiting = {s.stage: s.parallelism for s in steps if s.stage not in stages and s.stage >= 0}
    return {
        "id": record.id,
        "kind": record.kind,
        "is_savepoint": is_savepoint(record),
        "status": record.status.value,
        "attempt": record.attempt,
        "triggered": record.triggered,
        "duration_s": record.duration_s,
        "new_bytes": record.new_bytes,
        "full_bytes": record.full_bytes,
        "in_flight_bytes": record.in_flight_bytes,
        "barriers": record.barriers,
        "failure": record.failure,
        "acknowledged": acknowledged,
        "subtasks": acknowledged + sum(waiting.values()),
        "discarded": _is_discarded(record, view),
    }


def full(record: CheckpointStats, view: JobView) -> dict[str, Any]:
    """Return a checkpoint with its subtasks and events."""
    shown = ShownCheckpoint.of(_as_ended(record, view), view.directory)
    return {
        **brief(record, view),
        "path": shown.path,
        "discarded": shown.discarded,
        "operators": [
            {
                "uid": operator.uid,
                "name": operator.name,
                "subtasks": [msgspec.structs.asdict(stats) for stats in operator.stats],
                "channels": [msgspec.structs.asdict(channel) for channel in operator.channels],
            }
            for operator in record.operators
        ],
        "events": [
            {"time": e.time, "event": e.event.label, "stage": e.stage, "detail": e.detail}
            for e in record.events
        ],
    }


def _as_ended(record: CheckpointStats, view: JobView) -> CheckpointStats:
    """Return a checkpoint as failed if its driver died before it could say so."""
    runs = isinstance(view.driver, Alive) and view.overview.attempt == record.attempt
    if record.status is not CheckpointStatus.PENDING or runs:
        return record
    failure = f"attempt {record.attempt} ended before the checkpoint was complete"
    return msgspec.structs.replace(record, status=CheckpointStatus.FAILED, failure=failure)


def _is_discarded(record: CheckpointStats, view: JobView) -> bool:
    """Whether a checkpoint's files are deleted, by the journal: nothing is looked up per row."""
    if record.status is not CheckpointStatus.COMPLETED or view.state is None:
        return False
    if is_savepoint(record):
        return False
    return view.state.find(record.id) is None


def _configuration(view: JobView) -> dict[str, str]:
    """Return the settings of checkpoints under Flink's labels."""
    settings = settings_of(view)
    if settings is None:
        return {}
    interval = "none" if settings.interval_s is None else duration(settings.interval_s)
    aligned = "disabled" if not settings.unaligned else duration(settings.aligned_timeout_s)
    facts = view.facts
    backend = "" if facts is None else facts.settings.get("state.backend.type", "")
    return {
        "Checkpointing mode": settings.mode.value,
        "Interval": interval,
        "Timeout": duration(settings.timeout_s),
        "Minimum pause": duration(settings.min_pause_s),
        "Maximum concurrent": str(settings.max_concurrent),
        "Unaligned checkpoints": "enabled" if settings.unaligned else "disabled",
        "Aligned checkpoint timeout": aligned,
        "Incremental": "enabled" if settings.incremental else "disabled",
        "State backend": backend or "default",
        "Checkpoint storage": str(settings.directory or view.directory.root),
        "Savepoint directory": str(settings.savepoint_directory or "none"),
        "Retained checkpoints": str(settings.retained),
        "After the end of the job": settings.retention.value,
        "Tolerable failed checkpoints": str(settings.tolerable_failures),
    }
