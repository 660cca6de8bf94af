"""The client of a running job."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from penstock.common.builtin_metrics import builtin_metrics
from penstock.common.channel_info import ChannelInfo
from penstock.common.completable_future import CompletableFuture
from penstock.common.config.option_kinds import LOCATION
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.live_figures import LiveFigures
from penstock.common.metric_values import MetricInfo
from penstock.errors import InvalidJobError, PenstockError

__all__ = ["JobClient", "MakeFrame", "RunningJob"]

MakeFrame = Callable[[Any, Any], Any]
"""Creates a DataFrame of an Arrow table, in a Spark session or, for None, in the active one."""


class RunningJob(Protocol):
    """The job of a client."""

    job_id: JobID

    def status(self) -> JobStatus:
        """Return the status of the job."""

    def cancel(self) -> None:
        """End the job between micro-batches."""

    def result(self) -> Future[JobExecutionResult]:
        """Return the job's result, when it has ended."""

    def accumulators(self) -> dict[str, Any]:
        """Return the accumulators of published micro-batches, by name."""

    def metrics(self) -> list[MetricInfo]:
        """Return the metrics of published micro-batches."""

    def live_figures(self) -> LiveFigures:
        """Return the figures of the job now."""

    def micro_batches(self) -> list[Any]:
        """Return the newest published micro-batches."""

    def channels(self) -> list[ChannelInfo]:
        """Return the contents of each channel."""

    def channel_rows(self, channel: str | int, limit: int | None) -> Any:
        """Return the records in one channel as an Arrow table."""

    def savepoint(self, directory: str | None) -> Future[str]:
        """Take a savepoint; the configured directory is the default."""

    def stop(self, directory: str | None, *, drain: bool) -> Future[str]:
        """Take a savepoint and stop; with `drain`, as if all sources had ended."""


class JobClient:
    """Monitors and controls one job; returned by `execute_async`."""

    def __init__(self, job: RunningJob, make_frame: MakeFrame) -> None:
        self._job = job
        self._make_frame = make_frame

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return self._job.job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return the status of the job."""
        return CompletableFuture(_done(self._job.status()))

    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; the running micro-batch is still published."""
        self._job.cancel()
        return CompletableFuture(_done(None))

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint in a directory, by default the configured one; the job continues.

        The result is the savepoint's path, available when it is complete.
        """
        return CompletableFuture(_later(lambda: self._job.savepoint(_local(savepoint_directory))))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and stop the job; the result is the savepoint's path.

        With `advance_to_end_of_event_time` the job ends as if its sources had ended: for a job that
        will not be resumed.
        """
        drain = advance_to_end_of_event_time
        return CompletableFuture(
            _later(lambda: self._job.stop(_local(savepoint_directory), drain=drain))
        )

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return the accumulators, while the job runs or after it has ended."""
        return CompletableFuture(_done(self._job.accumulators()))

    def get_metrics(self, *, builtin: bool = False) -> list[MetricInfo]:
        """Return the metrics of all functions, a `MetricInfo` for each metric of a step.

        With `builtin` the built-in ones follow: of the job, its stages and its operators.
        """
        found = self._job.metrics()
        return [*found, *builtin_metrics(self._job.live_figures())] if builtin else found

    def get_live_figures(self) -> LiveFigures:
        """Return all figures of the job now: metrics, channels, executors and the driver."""
        return self._job.live_figures()

    def get_micro_batches(self) -> list[Any]:
        """Return the newest published micro-batches, a `MicroBatchReport` each."""
        return self._job.micro_batches()

    def get_channels(self) -> list[ChannelInfo]:
        """Return the contents of each channel; an empty list while no attempt runs."""
        return self._job.channels()

    def read_channel(
        self, channel: str | int, spark: Any = None, limit: int | None = 100_000
    ) -> Any:
        """Return a Spark DataFrame of the records that are in a channel now, for inspection.

        The channel is named as in `get_channels`, or by its id. The default session is the active
        one. The channel is read on the driver, at most `limit` rows, None for all; the job
        continues meanwhile, and records that it consumes before they are read are missing.

        Columns: `position` in the channel's log, `kind` (record, barrier, end of input),
        `checkpoint` of a barrier, `subtask` of the consumer that a record is for, its `key` as
        text, and its `value`: typed if the type is declared and basic, or a row or tuple of such;
        else as text.

        Raises:
            UnknownChannelError: the job has no such channel.
        """
        return self._make_frame(self._job.channel_rows(channel, limit), spark)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the job's result; it raises the job's failure."""
        return CompletableFuture(self._job.result())


def _local(directory: str | None) -> str | None:
    if directory is None:
        return None
    try:
        return str(LOCATION.parse(directory))
    except ValueError:
        message = f"savepoint_directory needs {LOCATION.expected}; got {directory!r}"
        raise InvalidJobError(message) from None


def _later(request: Callable[[], Future[str]]) -> Future[str]:
    """Make a request; an immediate rejection becomes a failed future."""
    try:
        return request()
    except PenstockError as error:
        refused: Future[str] = Future()
        refused.set_exception(error)
        return refused


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
