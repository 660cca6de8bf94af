"""A running job as the program that started it sees it."""

from __future__ import annotations

import atexit
import logging
import shutil
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.common.channel_info import ChannelInfo
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.metric_values import MetricInfo
from penstock.errors import JobCancelledError
from penstock.job.context import JobContext
from penstock.job.input.channel_view import ChannelView
from penstock.job.job_run import JobRun
from penstock.job.reports import MicroBatchReport

logger = logging.getLogger("penstock")


class LaunchedJob(JobRun):
    """A job with its result, for the client; all methods may be called from any thread."""

    def __init__(self, context: JobContext, temporary: Path | None) -> None:
        """Prepare a job; the directory `temporary` is removed at its end."""
        super().__init__(context)
        self.job_id = JobID.derived_from(context.job_dir.key)
        self._temporary = temporary
        self._future: Future[JobExecutionResult] = Future()
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        """Guards the listeners against the end of the job."""
        self._is_awaited = False
        """Whether a caller will get a failure as an exception."""

    def start(self) -> None:
        """Start the job; raises what makes it impossible."""
        # From here on a caller cannot cancel the future, which would leave no place for the result.
        self._future.set_running_or_notify_cancel()
        try:
            super().start()
        except BaseException:
            self._clean_up(keep_connectors=False)
            raise
        _running.add(self)

    def run_to_completion(self) -> JobExecutionResult:
        """Wait in the main program; Ctrl-C ends the job between micro-batches."""
        self._is_awaited = True
        with self._handling_interrupts() as interrupts:
            while not self._ended.wait(0.2):
                pass
        if interrupts:
            raise KeyboardInterrupt
        return self._future.result()

    @contextmanager
    def _handling_interrupts(self) -> Iterator[list[int]]:
        """Suspend the job at the first Ctrl-C, kill it at the second; yields the signals."""
        interrupts: list[int] = []

        def interrupted(number: int, frame: FrameType | None) -> None:
            interrupts.append(number)
            if len(interrupts) > 1:
                self.kill()
                return
            text = "ending after the running micro-batches; press Ctrl-C again to end at once"
            print(text, file=sys.stderr)
            self.suspend()

        if threading.current_thread() is not threading.main_thread():
            yield interrupts
            return
        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield interrupts
        finally:
            signal.signal(signal.SIGINT, before)

    def savepoint(self, directory: str | None) -> Future[str]:
        """Write a savepoint; the job continues. Returns its path."""
        return _path_of(self.trigger_savepoint(directory))

    def stop(self, directory: str | None, *, drain: bool) -> Future[str]:
        """Write a savepoint and end the job. Returns its path."""
        return _path_of(self.stop_with_savepoint(directory, drain=drain))

    def result(self) -> Future[JobExecutionResult]:
        """Return the result, once the job has ended."""
        self._is_awaited = True
        return self._future

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until the job has ended and its files are removed; false after a timeout."""
        return self._ended.wait(seconds)

    def raise_failure(self) -> None:
        """Wait for the end of the job; raise its failure if it failed."""
        self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def when_ended(self, listener: Callable[[], None]) -> None:
        """Call `listener` once the job has ended in any way; it checks for failures."""
        self._is_awaited = True
        with self._lock:
            if not self._ended.is_set():
                self._listeners.append(listener)
                return
        listener()

    def micro_batches(self) -> list[MicroBatchReport]:
        """Return the reports of the newest published micro-batches."""
        return self.statistics.reports()

    def channels(self) -> list[ChannelInfo]:
        """Return what waits in each channel; nothing while no attempt runs."""
        view = self.channel_view()
        return [] if view is None else view.facts()

    def channel_rows(self, channel: str | int, limit: int | None) -> pa.Table:
        """Return what waits in one channel, row by row."""
        no_attempt = ChannelView(self._context.plan, {}, dict, lambda _: Path())
        return (self.channel_view() or no_attempt).rows(channel, limit)

    def metrics(self) -> list[MetricInfo]:
        """Return the metrics of published micro-batches."""
        return self.statistics.infos()

    def accumulators(self) -> dict[str, Any]:
        """Return the counters of published micro-batches, as `step.counter`."""
        return self.statistics.accumulators()

    def _end(self) -> None:
        failure = self._failure
        try:
            self._clean_up(keep_connectors=failure is not None)
        except OSError as error:
            logger.warning("Job %r ended, but left files: %s", self._name, error)
        if failure is not None and not self._is_awaited:
            logger.error("Job %r failed: %s", self._name, failure)
        if failure is None and self._status is JobStatus.CANCELED:
            failure = JobCancelledError(self._name)
        if failure is not None:
            self._future.set_exception(failure)
        else:
            runtime, reports = time.monotonic() - self._started, tuple(self.micro_batches())
            self._future.set_result(
                JobExecutionResult(self.job_id, int(runtime * 1000), self.accumulators(), reports)
            )
        with self._lock:
            super()._end()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def _clean_up(self, *, keep_connectors: bool) -> None:
        if self._temporary is None:
            return
        kept = next(self._temporary.glob("*/connectors"), self._temporary / "connectors")
        if keep_connectors and kept.exists() and any(kept.rglob("*")):
            logger.warning("Records that were ingested and may be unprocessed are kept in %s", kept)
            return
        shutil.rmtree(self._temporary, ignore_errors=True)


_running: weakref.WeakSet[LaunchedJob] = weakref.WeakSet()


@atexit.register
def _end_running_jobs() -> None:
    """End the jobs that a program left running at its exit, and remove their files."""
    left = [job for job in _running if not job.wait_for_end(0)]
    for job in left:
        # Suspended rather than cancelled: with a checkpoint directory it can be resumed.
        job.suspend()
        job.kill()
    for job in left:
        job.wait_for_end(10.0)


def _path_of(completed: Future[CompletedCheckpoint]) -> Future[str]:
    path: Future[str] = Future()

    def done(result: Future[CompletedCheckpoint]) -> None:
        error = result.exception()
        if error is not None:
            path.set_exception(error)
        else:
            path.set_result(result.result().path)

    completed.add_done_callback(done)
    return path
