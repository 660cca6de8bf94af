"""A job while it runs in the process that measures it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, History
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common.job_client import JobClient
from penstock.common.storage_url import Location
from penstock.ids import JobKey
from penstock.job.launched_job import LaunchedJob
from penstock.job.reports import MicroBatchReport

PATIENCE_S = 900.0


class RunningJob:
    """Controls a running job; `directory` is its checkpoint directory."""

    def __init__(self, client: JobClient, directory: Location, job_id: str) -> None:
        self.client = client
        self._dir = JobDir(directory, JobKey(job_id))

    @property
    def history(self) -> History:
        return History(self._dir.storage)

    def check(self) -> None:
        """Raise if the job has ended."""
        result = self.client.get_job_execution_result()
        if result.done():
            result.result()
            msg = "the job has ended"
            raise RuntimeError(msg)

    def reports_of(self, step: str) -> list[MicroBatchReport]:
        """The micro-batches of the stage that has a step in it, in the order of publication."""
        found = [one for one in self.client.get_micro_batches() if step in one.stage_name]
        return sorted(found, key=lambda one: one.published)

    def processed(self, step: str) -> int:
        """How many records a step has published; an error if the job has ended."""
        self.check()
        return sum(one.records_in for one in self.reports_of(step))

    def checkpoint(self) -> tuple[CheckpointStats, Location]:
        """Take a checkpoint now; return its record and its path."""
        # The public way, through the job's directory, is polled: the barrier would come too late.
        job = cast("LaunchedJob", self.client._job)
        completed: CompletedCheckpoint = job.trigger_checkpoint().result(PATIENCE_S)
        wait_until(lambda: self._record(completed.checkpoint) is not None, "there is no record")
        record = self._record(completed.checkpoint)
        assert record is not None
        return record, self._dir.from_journal_path(completed.path)

    def checkpoints(self) -> list[CheckpointStats]:
        """Those that were completed."""
        known = self.history.checkpoints()
        return [one for one in known if one.status is CheckpointStatus.COMPLETED]

    def cancel(self) -> None:
        self.client.cancel()
        cast("LaunchedJob", self.client._job).wait_for_end(60.0)

    def suspend(self) -> None:
        """End it so that the next one resumes from its newest checkpoint."""
        job = cast("LaunchedJob", self.client._job)
        job.suspend()
        job.wait_for_end(60.0)

    def _record(self, checkpoint: int) -> CheckpointStats | None:
        record = self.history.checkpoint(checkpoint)
        return record if record and record.status is CheckpointStatus.COMPLETED else None


def wait_until(is_true: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > end:
            msg = f"{otherwise} after {PATIENCE_S:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.005)
