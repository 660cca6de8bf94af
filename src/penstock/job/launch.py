"""From a plan to a running job."""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.errors import JobCancelledError
from penstock.graph.plan import Plan
from penstock.ids import AttemptId, StageId
from penstock.job.interrupts import Interrupts
from penstock.job.job_run import JobRun, JobState
from penstock.job.report import MicroBatchReport
from penstock.job.settings import JobSettings, read_settings
from penstock.job.submitter import Submitter
from penstock.state.local_dir import choose_local_dir
from penstock.task.layout import Layout
from penstock.task.ship import ship
from penstock.task.subtask import StageTask

logger = logging.getLogger("penstock")

_STATUS = {
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.FINISHED: JobStatus.FINISHED,
    JobState.CANCELED: JobStatus.CANCELED,
    JobState.FAILED: JobStatus.FAILED,
}


MakeSubmitter = Callable[[JobID, dict[StageId, bytes], str], Submitter]
"""Makes the engine's side of a job: its id, its stages as bytes by id, its state backend."""


def launch(
    plan: Plan, configuration: Configuration, batch_mode: bool, make_submitter: MakeSubmitter
) -> LaunchedJob:
    """Start a plan and return at once.

    Everything that can be refused is refused before the engine is started.
    """
    settings = read_settings(configuration, batch_mode)
    job_id = JobID.generate()
    shared, is_temporary = _work_dir(settings, job_id)
    layout = Layout(shared, _local_dir(settings, job_id), AttemptId("a1"))
    types = {n.id: n.output_type for s in plan.stages for n in s.nodes}
    try:
        tasks = {
            stage.id: ship(
                StageTask(stage, layout, settings.backend, batch_mode, settings.parameters, types)
            )
            for stage in plan.stages
        }
        submitter = make_submitter(job_id, tasks, settings.backend)
    except BaseException:
        if is_temporary:
            shutil.rmtree(shared, ignore_errors=True)
        raise
    run = JobRun(plan, layout, settings, submitter)
    job = LaunchedJob(plan, job_id, run, submitter, shared if is_temporary else None)
    job.start()
    return job


class LaunchedJob:
    """A running job, seen from the program that started it."""

    def __init__(
        self,
        plan: Plan,
        job_id: JobID,
        run: JobRun,
        submitter: Submitter,
        temporary: Path | None,
    ) -> None:
        self.job_id = job_id
        self._plan = plan
        self._run = run
        self._submitter = submitter
        self._temporary = temporary
        self._future: Future[JobExecutionResult] = Future()
        self._listeners: list[Callable[[], None]] = []
        self._ended = threading.Event()
        self._is_awaited = False
        """Whether somebody is going to be told of a failure by an exception."""
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the loops, and the thread that waits for their end."""
        # From here on nobody can cancel the future itself and leave no place for the result.
        self._future.set_running_or_notify_cancel()
        try:
            self._run.start()
        except BaseException:
            self._clean_up(keep_connectors=False)
            raise
        _running.add(self)
        threading.Thread(target=self._await_end, name="job-cleanup", daemon=True).start()

    def run_to_the_end(self) -> JobExecutionResult:
        """Wait in the main program; Ctrl-C ends the job between micro-batches."""
        self._is_awaited = True
        with Interrupts(self) as interrupts:
            while not self._ended.wait(0.2):
                pass
        if interrupts.count:
            raise KeyboardInterrupt
        self.raise_failure()
        if self._run.state is JobState.CANCELED:
            raise JobCancelledError(self._plan.job_name)
        return self._future.result()

    def status(self) -> JobStatus:
        """Return where the job stands."""
        status = _STATUS[self._run.state]
        ending = status is JobStatus.RUNNING and self._run.cancelled
        return JobStatus.CANCELLING if ending else status

    def cancel(self) -> None:
        """End the job between micro-batches."""
        self._run.cancel()

    def kill(self) -> None:
        """End the job at once."""
        self._run.kill()

    def result(self) -> Future[JobExecutionResult]:
        """Return the job's end."""
        self._is_awaited = True
        return self._future

    def wait_for_end(self, seconds: float) -> bool:
        """Wait for the job to end and its files to be gone; false if it took too long."""
        return self._ended.wait(seconds)

    def raise_failure(self) -> None:
        """Raise what the job failed of, if it did; waits for its end."""
        self._ended.wait()
        if self._run.failure is not None:
            raise self._run.failure

    def when_ended(self, listener: Callable[[], None]) -> None:
        """Call `listener` once the job has ended, however it ended; it asks for failures."""
        self._is_awaited = True
        with self._lock:
            if not self._ended.is_set():
                self._listeners.append(listener)
                return
        listener()

    def micro_batches(self) -> list[MicroBatchReport]:
        """Return the newest published micro-batches."""
        return self._run.reports()

    def accumulators(self) -> dict[str, Any]:
        """Return what functions counted in published micro-batches, as `step.counter`."""
        names: dict[str, str] = {n.uid: n.name for s in self._plan.stages for n in s.nodes}
        counters: dict[str, Any] = {}
        for uid, counts in self._run.counters().items():
            for counter, count in counts.items():
                name = f"{names[uid]}.{counter}"
                counters[name] = counters.get(name, 0) + count
        return counters

    def _await_end(self) -> None:
        self._run.wait()
        failure = self._run.failure
        self._clean_up(keep_connectors=failure is not None)
        if failure is not None and not self._is_awaited:
            logger.error("job %r failed: %s", self._plan.job_name, failure)
        if failure is not None:
            self._future.set_exception(failure)
        elif self._run.state is JobState.CANCELED:
            self._future.set_exception(JobCancelledError(self._plan.job_name))
        else:
            self._future.set_result(self._summary())
        with self._lock:
            self._ended.set()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def _summary(self) -> JobExecutionResult:
        runtime = int((time.time() - self._run.started) * 1000)
        return JobExecutionResult(
            self.job_id, runtime, self.accumulators(), tuple(self._run.reports())
        )

    def _clean_up(self, keep_connectors: bool) -> None:
        self._submitter.close()
        if self._temporary is None:
            return
        kept = self._temporary / "connectors"
        if keep_connectors and kept.exists() and any(kept.rglob("*")):
            logger.warning("what was ingested but perhaps not processed is kept in %s", kept)
            return
        shutil.rmtree(self._temporary, ignore_errors=True)


_running: weakref.WeakSet[LaunchedJob] = weakref.WeakSet()


@atexit.register
def _end_running_jobs() -> None:
    """End what a program left running when it came to its end, and clean up behind it."""
    left = [job for job in _running if not job.wait_for_end(0)]
    for job in left:
        job.kill()
    for job in left:
        job.wait_for_end(10.0)


def _work_dir(settings: JobSettings, job_id: JobID) -> tuple[Path, bool]:
    if settings.work_dir is not None:
        return settings.work_dir / str(job_id), False
    return Path(tempfile.mkdtemp(prefix="penstock-")), True


def _local_dir(settings: JobSettings, job_id: JobID) -> Path:
    return (settings.local_dir or choose_local_dir()) / f"penstock-{job_id}"
