"""The checkpoints of a job: counts, summary, history, details and settings."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from penstock.checkpoint.history import CheckpointStatus
from penstock.checkpoint.settings import CheckpointSettings, Guarantee, Retention
from penstock.checkpoint.settings import read_checkpoint_settings as read_settings
from penstock.client.job_overview import ShownCheckpoint, is_savepoint
from penstock.common.config.known_options import STATE_BACKEND
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.errors import ConfigurationError
from penstock.serve.flink_json.checkpoints import (
    checkpoint_json,
    subtasks_json,
    vertex_stats,
)
from penstock.serve.flink_json.percentiles import summary
from penstock.serve.flink_json.statuses import millis
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.jobs.snapshots import checkpoints_of
from penstock.serve.jobs.vertices import vertices_of
from penstock.serve.rest.found_jobs import job_of, snapshot_of


def statistics(call: Call) -> dict[str, Any]:
    """Return the checkpoints that have statistics, newest first, with counts and a summary."""
    cached, job = job_of(call)
    records = checkpoints_of(cached, job, time.time())
    if not records and not _is_enabled(job):
        raise RestError(404, "Checkpointing has not been enabled.")
    statuses = Counter(record.status for record in records)
    completed = [r for r in records if r.status is CheckpointStatus.COMPLETED]
    vertices = vertices_of(job.facts)
    shown = {r.id: checkpoint_json(r, vertex_stats(r, vertices), with_tasks=False) for r in records}

    def newest(matches: Callable[[ShownCheckpoint], bool]) -> dict[str, Any] | None:
        return next((shown[r.id] for r in records if matches(r)), None)

    return {
        "counts": {
            "restored": _restores(job),
            "total": len(records),
            "in_progress": statuses[CheckpointStatus.PENDING],
            "completed": statuses[CheckpointStatus.COMPLETED],
            "failed": statuses[CheckpointStatus.FAILED],
        },
        "summary": _summary(completed),
        "latest": {
            "completed": newest(
                lambda r: r.status is CheckpointStatus.COMPLETED and not is_savepoint(r)
            ),
            "savepoint": newest(
                lambda r: r.status is CheckpointStatus.COMPLETED and is_savepoint(r)
            ),
            "failed": newest(lambda r: r.status is CheckpointStatus.FAILED),
            "restored": _restored(job),
        },
        "history": list(shown.values()),
    }


def details(call: Call) -> dict[str, Any]:
    """Return one checkpoint with its vertices, its operators and its event log."""
    job, record = snapshot_of(call)
    stats = vertex_stats(record, vertices_of(job.facts))
    return checkpoint_json(record, stats, with_tasks=True)


def subtasks(call: Call) -> dict[str, Any]:
    """Return what the subtasks of one vertex did for a checkpoint."""
    job, record = snapshot_of(call)
    id_ = call.path["vertexid"]
    vertices = vertices_of(job.facts)
    wanted = {vertex.id for vertex in vertices if vertex.is_called(id_)} | {id_, hex_id(id_)}
    for vertex in vertex_stats(record, vertices):
        if vertex.id in wanted:
            return subtasks_json(record, vertex)
    message = f"There is no checkpoint statistics for task {id_} in checkpoint {record.id}."
    raise RestError(404, message)


def config(call: Call) -> dict[str, Any]:
    """Return the checkpoint settings of a job."""
    _, job = job_of(call)
    settings = settings_of(job)
    if settings is None or job.facts is None or not settings.enabled:
        message = f"Checkpointing is not enabled for this job ({hex_id(job.overview.id)})."
        raise RestError(404, message)
    configuration = Configuration.from_dict(job.facts.settings)
    return {
        "mode": "at_least_once" if settings.mode is Guarantee.AT_LEAST_ONCE else "exactly_once",
        "interval": millis(settings.interval_s),
        "timeout": millis(settings.timeout_s),
        "min_pause": millis(settings.min_pause_s),
        "max_concurrent": settings.max_concurrent,
        "externalization": {
            "enabled": settings.retention is not Retention.NO_EXTERNALIZED,
            "delete_on_cancellation": settings.retention is not Retention.RETAIN_ON_CANCELLATION,
        },
        "state_backend": read(configuration, STATE_BACKEND),
        "checkpoint_storage": settings.storage.value,
        "unaligned_checkpoints": settings.unaligned,
        "tolerable_failed_checkpoints": settings.tolerable_failures,
        "aligned_checkpoint_timeout": millis(settings.aligned_timeout_s),
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": -1,
        "changelog_storage": None,
        "penstock-mode": settings.mode.value,
        "penstock-records": settings.records,
        "penstock-incremental": settings.incremental,
        "penstock-retained": settings.retained,
    }


def settings_of(job: JobView) -> CheckpointSettings | None:
    """Return the checkpoint settings of a job, None if they are not known."""
    if job.facts is None or not job.facts.settings:
        return None
    try:
        configuration = Configuration.from_dict(job.facts.settings)
        return read_settings(configuration, batch_mode=job.facts.mode == "BATCH")
    except ConfigurationError:
        return None  # written by another version, or damaged


def _is_enabled(job: JobView) -> bool:
    settings = settings_of(job)
    return settings is None or settings.enabled


def _summary(records: Sequence[ShownCheckpoint]) -> dict[str, Any]:
    return {
        "checkpointed_size": summary(r.new_bytes for r in records),
        "state_size": summary(r.full_bytes for r in records),
        "end_to_end_duration": summary(millis(r.duration_s) for r in records),
        "alignment_buffered": summary(0 for _ in records),
        "processed_data": summary(0 for _ in records),
        "persisted_data": summary(r.in_flight_bytes for r in records),
    }


def _restores(job: JobView) -> int:
    attempts = () if job.state is None else job.state.attempts
    return sum(attempt.restored_path is not None for attempt in attempts)


def _restored(job: JobView) -> dict[str, Any] | None:
    attempt = None if job.state is None else job.state.last_attempt
    if job.state is None or attempt is None or attempt.restored_path is None:
        return None
    own = None if attempt.restored is None else job.state.find(attempt.restored)
    return {
        "id": -1 if attempt.restored is None else attempt.restored,
        "restore_timestamp": millis(attempt.time),
        "is_savepoint": own is not None and own.savepoint,
        "external_path": str(job.directory.from_journal_path(attempt.restored_path)),
    }


_CHECKPOINTS = "/jobs/:jobid/checkpoints"
ENDPOINTS = [
    Endpoint("GET", _CHECKPOINTS, statistics, "The checkpoints of a job, with a summary"),
    Endpoint("GET", f"{_CHECKPOINTS}/config", config, "The checkpoint settings of a job"),
    Endpoint("GET", f"{_CHECKPOINTS}/details/:checkpointid", details, "One checkpoint, by vertex"),
    Endpoint(
        "GET",
        f"{_CHECKPOINTS}/details/:checkpointid/subtasks/:vertexid",
        subtasks,
        "One vertex in one checkpoint, by subtask",
    ),
]
