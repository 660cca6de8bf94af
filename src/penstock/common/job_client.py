"""A handle on a job that runs."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus

__all__ = ["JobClient", "RunningJob"]


class RunningJob(Protocol):
    """What a client asks of the job it stands for."""

    job_id: JobID

    def status(self) -> JobStatus:
        """Return where the job stands now."""
        ...

    def cancel(self) -> None:
        """End the job between micro-batches."""
        ...

    def result(self) -> Future[JobExecutionResult]:
        """Return the job's end, whenever it comes."""
        ...

    def accumulators(self) -> dict[str, Any]:
        """Return what was counted in published micro-batches, by name."""
        ...

    def micro_batches(self) -> list[Any]:
        """Return the newest published micro-batches."""
        ...


class JobClient:
    """Watches and controls one job; returned by `execute_async`."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return self._job.job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return where the job stands."""
        return CompletableFuture(_done(self._job.status()))

    def cancel(self) -> CompletableFuture[None]:
        """End the job; what is running is still published."""
        self._job.cancel()
        return CompletableFuture(_done(None))

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return the counters so far, while the job runs or after it, however it ended."""
        return CompletableFuture(_done(self._job.accumulators()))

    def get_micro_batches(self) -> list[Any]:
        """Return the newest published micro-batches, a `MicroBatchReport` each."""
        return self._job.micro_batches()

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the job's result; it fails as the job failed."""
        return CompletableFuture(self._job.result())


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
