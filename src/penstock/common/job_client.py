"""A handle on a job that runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from penstock.common.channel_info import ChannelInfo
from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.metric_figures import MetricInfo
from penstock.common.option_kinds import LOCAL_PATH
from penstock.errors import InvalidJobError, PenstockError

__all__ = ["JobClient", "MakeFrame", "RunningJob"]

MakeFrame = Callable[[Any, Any], Any]
"""Makes a DataFrame of an Arrow table, in a Spark session or, given None, in the active one."""


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

    def metrics(self) -> list[MetricInfo]:
        """Return what functions measured in published micro-batches."""
        ...

    def micro_batches(self) -> list[Any]:
        """Return the newest published micro-batches."""
        ...

    def channels(self) -> list[ChannelInfo]:
        """Return what waits in each channel."""
        ...

    def channel_rows(self, channel: str | int, limit: int | None) -> Any:
        """Return an Arrow table of what waits in one channel."""
        ...

    def savepoint(self, directory: str | None) -> Future[str]:
        """Write a savepoint and go on; without a directory, where the configuration says."""
        ...

    def stop(self, directory: str | None, *, drain: bool) -> Future[str]:
        """Write a savepoint and end; with `drain`, as if all sources had come to their end."""
        ...


class JobClient:
    """Watches and controls one job; returned by `execute_async`."""

    def __init__(self, job: RunningJob, make_frame: MakeFrame) -> None:
        self._job = job
        self._make_frame = make_frame

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

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Write a savepoint below a directory, or where the configuration says; the job goes on.

        The result is the savepoint's path, there once it is complete.
        """
        return CompletableFuture(_later(lambda: self._job.savepoint(_local(savepoint_directory))))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Write a savepoint and end the job behind it; the result is the savepoint's path.

        With `advance_to_end_of_event_time` the job ends as if its sources had come to their end:
        for a job that is not to go on.
        """
        drain = advance_to_end_of_event_time
        return CompletableFuture(
            _later(lambda: self._job.stop(_local(savepoint_directory), drain=drain))
        )

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return the counters so far, while the job runs or after it, however it ended."""
        return CompletableFuture(_done(self._job.accumulators()))

    def get_metrics(self) -> list[MetricInfo]:
        """Return what functions have measured so far, a `MetricInfo` for each metric of a step."""
        return self._job.metrics()

    def get_micro_batches(self) -> list[Any]:
        """Return the newest published micro-batches, a `MicroBatchReport` each."""
        return self._job.micro_batches()

    def get_channels(self) -> list[ChannelInfo]:
        """Return what waits in each channel now; an empty list while no attempt runs."""
        return self._job.channels()

    def read_channel(
        self, channel: str | int, spark: Any = None, limit: int | None = 100_000
    ) -> Any:
        """Return a Spark DataFrame of what waits in a channel now: for a look, not for work.

        The channel is named as in `get_channels`, or by its id. Without a session the active one
        is taken. It is read on the driver, at most `limit` rows, None being all; the job
        goes on meanwhile, and what it consumes before it was read is left out.

        Columns: `position` in the channel's log, `kind` (record, barrier, end of input),
        `checkpoint` of a barrier, `subtask` of the consumer that a record is for, its `key` as
        text, and its `value`: typed if the type is declared and basic, or a row or tuple of such;
        else as text.

        Raises:
            UnknownChannelError: the job has no such channel.
        """
        return self._make_frame(self._job.channel_rows(channel, limit), spark)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the job's result; it fails as the job failed."""
        return CompletableFuture(self._job.result())


def _local(directory: str | None) -> str | None:
    if directory is None:
        return None
    try:
        return str(LOCAL_PATH.parse(directory))
    except ValueError:
        message = f"savepoint_directory needs {LOCAL_PATH.expected}; got {directory!r}"
        raise InvalidJobError(message) from None


def _later(ask: Callable[[], Future[str]]) -> Future[str]:
    """Ask for something; what is refused at once fails like what goes wrong later."""
    try:
        return ask()
    except PenstockError as error:
        refused: Future[str] = Future()
        refused.set_exception(error)
        return refused


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
