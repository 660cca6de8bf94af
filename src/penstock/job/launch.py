"""From a plan to a running job."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.checkpoint.job_dir import JobDir, JobFacts, job_key
from penstock.checkpoint.journal import Journal
from penstock.checkpoint.settings import read_checkpoint_settings
from penstock.checkpoint.store import Completed
from penstock.common.channel_info import ChannelInfo
from penstock.common.checkpoint_options import FRESH
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.metric_figures import MetricInfo
from penstock.errors import JobAlreadyRunningError, JobCancelledError, UnwritablePathError
from penstock.graph.groups import Group, Transport, group_stages
from penstock.graph.plan import Plan
from penstock.ids import AttemptId, ChannelId, JobKey, StageId
from penstock.job.channel_view import ChannelView
from penstock.job.interrupts import Interrupts
from penstock.job.job_run import JobParts, JobRun, JobState
from penstock.job.report import MicroBatchReport
from penstock.job.settings import JobSettings, read_settings
from penstock.job.submitter import Submitter
from penstock.job.work_dirs import own_work_dir
from penstock.recovery.restart import read_restart_strategy
from penstock.recovery.supervisor import supervised_since
from penstock.state.local_dir import HostDir
from penstock.task.layout import Layout
from penstock.task.ship import ship
from penstock.task.subtask import StageTask

logger = logging.getLogger("penstock")

_STATUS = {
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.RESTARTING: JobStatus.RESTARTING,
    JobState.FINISHED: JobStatus.FINISHED,
    JobState.CANCELED: JobStatus.CANCELED,
    JobState.FAILED: JobStatus.FAILED,
}


MakeSubmitter = Callable[[tuple[Group, ...], str, dict[StageId, bytes]], Submitter]
"""Makes the engine's side of an attempt: its groups, its name, its stages as bytes by id."""

SettleTransport = Callable[[Transport | None], Transport]
"""Says how records travel if the user says this, or nothing; called before a submitter is made."""

_started_here: weakref.WeakValueDictionary[Path, LaunchedJob] = weakref.WeakValueDictionary()
"""The jobs of this process by directory: the lease tells only processes apart.

A job that runs is held by its threads.
"""


def launch(
    plan: Plan,
    configuration: Configuration,
    batch_mode: bool,
    make_submitter: MakeSubmitter,
    settle_transport: SettleTransport = lambda wanted: wanted or Transport.CHANNEL,
    clock: Callable[[], float] = time.time,
) -> LaunchedJob:
    """Start a plan and return at once; a job that died goes on from its newest checkpoint.

    Everything that can be refused is refused before the engine is started.
    """
    checkpoints = read_checkpoint_settings(configuration, batch_mode=batch_mode)
    settings = read_settings(configuration, checkpoints, batch_mode)
    restart = read_restart_strategy(configuration, checkpointing=checkpoints.enabled)
    key = job_key(checkpoints.job_id, plan.job_name)
    outlives = checkpoints.directory is not None
    work_dir, temporary = _work_dir(settings, key, is_all=outlives)
    job_dir = JobDir(checkpoints.directory or temporary or work_dir, key)
    _make(job_dir.path)
    running = _started_here.get(job_dir.path)
    if running is not None and not running.wait_for_end(0):
        raise JobAlreadyRunningError(key, "this host", os.getpid(), "just now")
    local_dir = _local_dir(settings, job_dir)
    if checkpoints.enabled and checkpoints.directory is None:
        logger.warning(
            "checkpoints of job %r do not outlive this process: a killed driver starts anew. "
            "Set execution.checkpointing.dir to a directory that stays",
            plan.job_name,
        )

    def tasks(groups: tuple[Group, ...], layout: Layout) -> dict[StageId, bytes]:
        return {
            stage.id: ship(
                StageTask(
                    stage=stage,
                    layout=layout,
                    backend=settings.backend,
                    batch_mode=batch_mode,
                    parameters=settings.parameters,
                    inner=group.inner,
                )
            )
            for group in groups
            for stage in group.stages
        }

    def group(plan: Plan, logged: Collection[ChannelId]) -> tuple[Group, ...]:
        return group_stages(plan, settle_transport(settings.transport), logged)

    def submitter(groups: tuple[Group, ...], layout: Layout) -> Submitter:
        name = f"{key}-{layout.attempt}-{os.urandom(3).hex()}"
        return make_submitter(groups, name, tasks(groups, layout))

    # What cannot be shipped is refused before the journal says that the job was started.
    tasks(
        group_stages(plan, Transport.CHANNEL),
        Layout(work_dir, local_dir, AttemptId("none"), job_dir.path, key),
    )
    program = JobFacts(plan.job_name, time.time(), sys.argv[0] or None, sys.argv[1:])
    run = JobRun(
        JobParts(
            plan=plan,
            settings=settings,
            checkpoints=checkpoints,
            restart=restart,
            job_dir=job_dir,
            work_dir=work_dir,
            local_dir=local_dir,
            fresh=_begins_fresh(configuration, job_dir),
            program=program,
            group=group,
            make_submitter=submitter,
            clock=clock,
        )
    )
    job = LaunchedJob(plan, key, run, temporary, outlives=outlives)
    _started_here[job_dir.path] = job
    try:
        _make(work_dir)
        own_work_dir(work_dir, job_dir.path)
        job.start()
    except BaseException:
        _started_here.pop(job_dir.path, None)
        shutil.rmtree(work_dir, ignore_errors=True)
        raise
    return job


class LaunchedJob:
    """A running job, seen from the program that started it."""

    def __init__(
        self, plan: Plan, key: JobKey, run: JobRun, temporary: Path | None, *, outlives: bool
    ) -> None:
        self.job_id = JobID.derived_from(key)
        self._plan = plan
        self._run = run
        self._temporary = temporary
        self.outlives = outlives
        """Whether its checkpoints outlive the driver, so that it can be gone on with."""
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

    def suspend(self) -> None:
        """End the job between micro-batches; with a checkpoint directory it can be gone on with."""
        self._run.suspend()

    def savepoint(self, directory: str | None) -> Future[str]:
        """Ask for a savepoint; the job goes on. Returns where it is."""
        return _path_of(self._run.savepoint(None if directory is None else Path(directory)))

    def stop(self, directory: str | None, *, drain: bool) -> Future[str]:
        """Ask for a savepoint behind which the job ends. Returns where it is."""
        where = None if directory is None else Path(directory)
        return _path_of(self._run.stop(where, drain=drain))

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

    def channels(self) -> list[ChannelInfo]:
        """Return what waits in each channel; nothing while no attempt runs."""
        view = self._run.channels()
        return [] if view is None else view.facts()

    def channel_rows(self, channel: str | int, limit: int | None) -> pa.Table:
        """Return what waits in one channel, row by row."""
        none_waits = ChannelView(self._plan, {}, dict, lambda _: Path())
        return (self._run.channels() or none_waits).rows(channel, limit)

    def metrics(self) -> list[MetricInfo]:
        """Return what functions measured in published micro-batches."""
        return self._run.metrics()

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
        if self._temporary is None:
            return
        kept = next(self._temporary.glob("*/connectors"), self._temporary / "connectors")
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
        # Nobody cancelled it: with a checkpoint directory it can be gone on with.
        job.suspend()
        job.kill()
    for job in left:
        job.wait_for_end(10.0)


def _work_dir(settings: JobSettings, key: JobKey, *, is_all: bool) -> tuple[Path, Path | None]:
    """Return where attempts work, and the temporary directory it is, or is in.

    `is_all` says that nothing else of the job is temporary.
    """
    if settings.work_dir is not None:
        return settings.work_dir / f"penstock-{key}-{os.urandom(3).hex()}", None
    temporary = Path(tempfile.mkdtemp(prefix="penstock-"))
    return (temporary if is_all else temporary / "penstock-work"), temporary


def _begins_fresh(configuration: Configuration, job_dir: JobDir) -> bool:
    """Whether nothing may be restored: a supervised driver that died has begun fresh already."""
    since = supervised_since()
    if not read(configuration, FRESH) or since is None:
        return read(configuration, FRESH)
    attempts = Journal(job_dir.storage, job_dir.key).state().attempts
    return not any(attempt.fresh and attempt.time >= since for attempt in attempts)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritablePathError(str(directory), error.strerror or str(error)) from error


def _local_dir(settings: JobSettings, job_dir: JobDir) -> HostDir:
    named = f"{job_dir.path} {job_dir.birth()}"
    where = hashlib.blake2b(named.encode(), digest_size=6).hexdigest()
    return HostDir(settings.local_dir, f"penstock-{job_dir.key}-{where}")


def _path_of(completed: Future[Completed]) -> Future[str]:
    path: Future[str] = Future()

    def done(result: Future[Completed]) -> None:
        error = result.exception()
        if error is not None:
            path.set_exception(error)
        else:
            path.set_result(result.result().path)

    completed.add_done_callback(done)
    return path
