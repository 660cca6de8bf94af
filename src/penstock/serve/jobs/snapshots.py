"""The checkpoints and savepoints of a job as they are now: which exist, and which are pending."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus
from penstock.checkpoint.storage.job_dir import checkpoint_dir_name
from penstock.client.job_overview import ShownCheckpoint, is_savepoint, with_ended_attempt
from penstock.serve.jobs.cached_job import CachedJob, JobView


def checkpoints_of(cached: CachedJob, job: JobView, now: float) -> list[ShownCheckpoint]:
    """Return all checkpoints and savepoints that have statistics, newest first.

    Which checkpoints exist is one request to a store; each savepoint is one more.
    """
    existing = {checkpoint_dir_name(c) for c in job.directory.checkpoints_on_disk()}
    return list(_shown(cached.checkpoints(), job, existing, now))


def checkpoint_of(
    cached: CachedJob, job: JobView, checkpoint: int, now: float
) -> ShownCheckpoint | None:
    """Return one checkpoint or savepoint, None if it has no statistics."""
    found = cached.checkpoint(checkpoint)
    if found is None:
        return None
    return with_ended_attempt(ShownCheckpoint.of(found, job.directory), job.overview, now)


def _shown(
    records: Iterable[CheckpointStats], job: JobView, existing: set[str], now: float
) -> Iterable[ShownCheckpoint]:
    for record in records:
        if record.status is CheckpointStatus.COMPLETED and not is_savepoint(record):
            path = str(job.directory.checkpoint_dir(record.id))
            fields = msgspec.structs.asdict(record) | {"path": path}
            discarded = checkpoint_dir_name(record.id) not in existing
            yield ShownCheckpoint(**fields, discarded=discarded)
        else:
            shown = ShownCheckpoint.of(record, job.directory)
            yield with_ended_attempt(shown, job.overview, now)
