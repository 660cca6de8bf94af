"""Runs a job from attempt to attempt until it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import threading
import time
import traceback
from concurrent.futures import Future

import msgspec

from penstock import errors
from penstock.checkpoint.coordinator.request_decider import RequestKind
from penstock.checkpoint.history import ExceptionRecord
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.common.job_status import JobStatus
from penstock.common.live_figures import LiveFigures
from penstock.connectors.collect_sink import CollectSink
from penstock.crash_points import CrashPoint, reach
from penstock.errors.base import message_of
from penstock.job.attempt.attempt import Attempt
from penstock.job.attempt.attempt_starter import AttemptStarter, RunningAttempt
from penstock.job.attempt.inputs import close_quietly
from penstock.job.context import JobContext
from penstock.job.figures.job_figures import JobFigures
from penstock.job.figures.job_monitor import JobMonitor
from penstock.job.figures.live_reporter import LiveReporter
from penstock.job.input.channel_view import ChannelView
from penstock.job.job_result import (
    clean_at_exit,
    count_execution,
    notices_exit,
    this_driver,
    unreported_end,
)
from penstock.job.job_store import JobStore
from penstock.job.next_steps import end_message
from penstock.job.request_server import RequestServer
from penstock.job.snapshot.running_state import RunningStateReader
from penstock.job.statistics import JobStatistics
from penstock.recovery.control import Control
from penstock.recovery.lease import Silent, refuse_second_driver
from penstock.recovery.restart_strategy import (
    GiveUp,
    History,
    NoRestart,
    Restart,
    decide_restart,
    fingerprint_of,
)
from penstock.recovery.supervisor import driver_died_at
from penstock.snapshots.queries.query import RunningState, StateQuery

logger = logging.getLogger("penstock.job")


class JobRun:
    """Runs a plan to its end, restarting after failures as the restart strategy allows.

    Attempts run one after the other in a thread of the job's own. All public methods may be called
    from other threads; they read `_running` once, because the job's thread replaces it.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._dir = context.job_dir
        self._store = JobStore(context)
        self.statistics = JobStatistics(
            {str(n.uid): n.name for s in context.plan.stages for n in s.nodes}
        )
        self._monitor = JobMonitor(context.plan, context.monotonic)
        self._figures = JobFigures(self._monitor, self.statistics, context.cluster)
        self._reporter = LiveReporter(self._dir, self.live_figures, self._store.lease.check)
        self._state_reader = RunningStateReader(
            context.work_dir / "reads", context.clock, context.monotonic
        )
        self._starter = AttemptStarter(context, self._store, self.statistics.add, self._monitor)
        self._is_resumable = context.checkpoints.directory is not None
        """Whether checkpoints survive the driver."""
        self._store.lease.on_lost = self._end_fenced
        control = Control(self._dir)
        self._requests = (
            RequestServer(control, self, self._store.lease) if self._is_resumable else None
        )
        self._restarts = History()
        self._running: RunningAttempt | None = None
        self._end_requested = threading.Event()
        self._killed = self._cancelled = self._suspended = False
        self._started = time.monotonic()
        self._execution = 1
        self._status = JobStatus.RUNNING
        self._failure: BaseException | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the first attempt; raises what makes the job impossible."""
        settings = self._context.checkpoints
        owner = refuse_second_driver(
            self._dir, settings.heartbeat_timeout_s, settings.heartbeat_interval_s
        )
        if self._requests is not None:
            self._requests.reject_abandoned()
        self._execution = count_execution(self._dir.path)
        if self._is_reported(is_hung=isinstance(owner, Silent)):
            return
        since = getattr(owner, "since", None)
        detect_s = 0.0 if since is None else time.time() - max(since, driver_died_at() or since)
        cause = "" if since is None else "the driver died"
        try:
            self._start_attempt(cause, max(0.0, detect_s), restarting=False)
        except BaseException:
            if self._requests is not None:
                self._requests.close("the job failed to start")
            self._release()
            raise
        self._store.lease.job_runs()
        if self._requests is not None:
            self._requests.start()
        threading.Thread(target=self._run, name="job", daemon=True).start()

    def _is_reported(self, *, is_hung: bool) -> bool:
        """Report the end of the job if its driver died before it could; true if it has ended.

        A driver that ended the job and still has its lease, but sends no heartbeats, hangs.
        """
        state = self._store.journal.state()
        ended = unreported_end(self._context, state, self._execution, is_hung=is_hung)
        if ended is None:
            return False
        logger.warning(
            "Job %r is %s; its driver died after that. The job is not run again; --fresh runs it",
            self._name,
            ended.status.name,
        )
        self._store.journal.adopt(ended.attempt)
        self._store.lease.adopt(ended.attempt)
        self._tidy(state)
        clean_at_exit(self._dir.path, self._store.journal)
        self._status = ended.status
        self._release()
        self._end()
        return True

    # -- requests, from any thread ----------------------------------------------------------

    def status(self) -> JobStatus:
        """Return the status of the job."""
        is_cancelling = self._status is JobStatus.RUNNING and self._cancelled
        return JobStatus.CANCELLING if is_cancelling else self._status

    def cancel(self) -> None:
        """End between micro-batches: what is running is still published."""
        self._cancelled = True
        self._end_attempt(kill=False)

    def suspend(self) -> None:
        """End between micro-batches; with a checkpoint directory the job can be resumed."""
        self._suspended = self._is_resumable
        self.cancel()

    def kill(self) -> None:
        """End now: running micro-batches are discarded."""
        self._cancelled = True
        self._end_attempt(kill=True)

    def channel_view(self) -> ChannelView | None:
        """Return the channels of the running attempt, None if there is none."""
        running = self._running
        return None if running is None else running.attempt.channels()

    def live_figures(self) -> LiveFigures:
        """Return the figures of the job now."""
        running = self._running
        attempt = None if running is None else running.attempt
        return self._figures.take(self._store.journal.attempt or "", self.status().name, attempt)

    def read_state(self, query: StateQuery) -> RunningState:
        """Answer a query from the state after the last micro-batch; one thread at a time.

        Raises:
            StateUnavailableError: the job does not run now, or has no keyed state.
            SnapshotError: the query cannot be answered.
        """
        running = self._running
        if running is None or self._status is not JobStatus.RUNNING:
            raise errors.StateUnavailableError(self._dir.key, "it is between two attempts")
        if self._context.settings.batch_mode:
            raise errors.StateUnavailableError(self._dir.key, "it runs in BATCH mode")
        found = self._state_reader.read(running.attempt.keyed_states(), query)
        restorable = self._store.journal.state().restorable
        last = restorable[-1].checkpoint if restorable else None
        return msgspec.structs.replace(found, checkpoint=last)

    def close_idle_reads(self) -> None:
        """Close state that was read for queries and has not been queried for a minute."""
        self._state_reader.close_idle()

    def watch(self, seconds: float) -> float:
        """Write the figures into the job's directory for some seconds; return for how many."""
        return self._reporter.watch(seconds)

    def trigger_checkpoint(self) -> Future[CompletedCheckpoint]:
        """Take a checkpoint now."""
        return self._request(RequestKind.MANUAL, None)

    def trigger_savepoint(self, directory: str | None) -> Future[CompletedCheckpoint]:
        """Write a savepoint; the job continues."""
        return self._request(RequestKind.SAVEPOINT, self._savepoint_path(directory))

    def stop_with_savepoint(
        self, directory: str | None, *, drain: bool
    ) -> Future[CompletedCheckpoint]:
        """Write a savepoint and end the job; with `drain` after the end of input."""
        kind = RequestKind.FINAL if drain else RequestKind.STOP
        return self._request(kind, self._savepoint_path(directory))

    def _savepoint_path(self, directory: str | None) -> str:
        settings = self._context.checkpoints
        place = settings.savepoint_directory if directory is None else settings.locate(directory)
        if place is None:
            message = (
                "there is no directory for the savepoint: name one (-p DIRECTORY), or set "
                "execution.checkpointing.savepoint-dir"
            )
            raise errors.CheckpointFailedError(0, message)
        return str(place / f"savepoint-{self._dir.key}-{os.urandom(6).hex()}")

    def _request(self, kind: RequestKind, path: str | None) -> Future[CompletedCheckpoint]:
        running = self._running
        coordinator = None if running is None else running.attempt.coordinator
        if coordinator is None or self._status is not JobStatus.RUNNING:
            raise errors.CheckpointFailedError(0, "the job is not running, or runs in BATCH mode")
        return coordinator.request(kind, path, drain=kind is RequestKind.FINAL)

    def _end_attempt(self, *, kill: bool) -> None:
        self._killed = self._killed or kill
        self._end_requested.set()
        running = self._running
        if running is not None and self._killed:
            running.attempt.kill()
        elif running is not None:
            running.attempt.cancel(for_good=not self._suspended)

    # -- the job's thread -------------------------------------------------------------------

    def _start_attempt(self, cause: str, detect_s: float, *, restarting: bool) -> None:
        self._running = self._starter.start(cause, detect_s, restarting=restarting)
        # A request to end that came during the start has found no attempt to end.
        if self._end_requested.is_set():
            self._end_attempt(kill=self._killed)
        # The same holds for the loss of the lease.
        if (lost := self._store.lease.lost) is not None:
            self._end_fenced(lost)

    def _fenced(self, failure: BaseException) -> errors.FencedError | None:
        """Return why the job must not go on in this driver, None if it may."""
        if isinstance(failure, errors.FencedError):
            return failure
        try:
            self._store.lease.check()
        except errors.FencedError as fenced:
            return fenced
        except (errors.PenstockError, OSError):
            pass  # the next attempt appends to the journal, or fails
        return None

    def _end_fenced(self, lost: errors.FencedError) -> None:
        """End the attempt, because another driver has taken the job; called by any thread."""
        running = self._running
        if running is not None:
            running.attempt.fail(lost)

    def _run(self) -> None:
        try:
            failure = self._wait_for_attempt()
            while failure is not None and self._restart(failure):
                failure = self._wait_for_attempt()
        except BaseException as error:
            self._failure, self._status = error, JobStatus.FAILED
            logger.debug("Job %r failed outside an attempt", self._name, exc_info=True)
        finally:
            # Whatever fails here: who waits for the end of the job must not wait forever.
            close_quietly(self._close_attempt)
            close_quietly(self._reporter.close)
            if self._requests is not None:
                close_quietly(self._requests.close)
            close_quietly(self._log_end)
            close_quietly(self._release)
            self._end()

    def _wait_for_attempt(self) -> BaseException | None:
        """Wait for the end of the attempt; return its failure, None if it ended the job."""
        assert self._running is not None
        attempt = self._running.attempt
        attempt.wait()
        if attempt.failure is None:
            self._finish(attempt)
        return attempt.failure

    def _restart(self, failure: BaseException) -> bool:
        """Start another attempt; false if the job has ended instead."""
        detected = time.monotonic()
        self._monitor.attempt_failed()
        self._close_attempt()
        self._monitor.attempt_closed()
        while True:
            # A driver that was replaced may fail in any way. The history is not its own any more.
            if (fenced := self._fenced(failure)) is not None:
                self._fail(fenced)
                return False
            reason = message_of(failure)
            self._record_exception(failure, reason)
            now = time.monotonic()
            decision = decide_restart(
                self._context.restart,
                failure,
                self._restarts,
                now,
                random.random,
                self._context.settings.max_identical_failures,
            )
            if self._end_requested.is_set():
                self._finish_after(failure)
                return False
            if isinstance(decision, GiveUp):
                if not isinstance(self._context.restart, NoRestart):
                    logger.warning("Job %r is not restarted: %s", self._name, decision.reason)
                self._fail(failure)
                return False
            if decision.counts:
                restart = Restart(now, now + decision.seconds, fingerprint_of(failure))
                self._restarts = self._context.restart.after(self._restarts, restart)
            logger.warning(
                "Job %r failed and restarts in %.1f s: %s", self._name, decision.seconds, reason
            )
            self._status = JobStatus.RESTARTING
            if self._end_requested.wait(decision.seconds):
                self._finish_after(failure)
                return False
            try:
                self._start_attempt(reason, max(0.0, now - detected), restarting=True)
            except BaseException as error:
                failure = error
            else:
                self._status = JobStatus.RUNNING
                return True

    # -- the end of the job -----------------------------------------------------------------

    def _finish(self, attempt: Attempt | None) -> None:
        deletes_checkpoints = self._cancelled and not self._suspended
        if deletes_checkpoints and (uncommitted := self._store.retained.uncommitted()):
            # The checkpoint is the only place that still has this output.
            self._fail(errors.UncommittedOutputError(self._name, *uncommitted))
            return
        status = JobStatus.CANCELED if self._cancelled else JobStatus.FINISHED
        last = None if self._cancelled or attempt is None else attempt.last
        reach(CrashPoint.JOB_FINISHING)
        if not self._suspended:
            # The end is recorded first: a job without checkpoints would otherwise start again.
            savepoint = last.path if last is not None and last.is_savepoint else None
            self._record_end(status, savepoint)
            self._tidy(self._store.journal.state())
        reach(CrashPoint.JOB_FINISHED)
        self._status = status

    def _finish_after(self, failure: BaseException) -> None:
        """End a job on request, between a failure and the next attempt."""
        try:
            self._finish(None)
        except (OSError, errors.PenstockError) as error:
            logger.warning("The end of job %r cannot be recorded: %s", self._name, error)
            self._failure, self._status = failure, JobStatus.FAILED

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        if not isinstance(failure, errors.FencedError):
            try:
                self._store.record_end(JobStatus.FAILED, None)
            except (errors.PenstockError, OSError) as error:
                logger.warning("The end of job %r cannot be recorded: %s", self._name, error)
        self._status = JobStatus.FAILED

    def _record_end(self, status: JobStatus, savepoint: str | None) -> None:
        """Record the end, dirty until this process exits if a later one can find it."""
        is_dirty = self._is_resumable and not self._is_collected and notices_exit()
        driver = this_driver(self._execution) if is_dirty else None
        self._store.record_end(status, savepoint, driver)
        if is_dirty:
            clean_at_exit(self._dir.path, self._store.journal)

    def _log_end(self) -> None:
        # Not if the journal cannot be read, or another driver runs the job.
        with contextlib.suppress(Exception):
            logger.info(end_message(self._context, self._store.journal.state()))

    def _tidy(self, ended: JournalState) -> None:
        try:
            self._store.tidy(ended)
        except (OSError, errors.PenstockError) as error:
            logger.warning("Job %r ended, but left files: %s", self._name, error)

    @property
    def _is_collected(self) -> bool:
        """Whether the program collects records: they are lost with it, so the job runs again."""
        nodes = (node for stage in self._context.plan.stages for node in stage.nodes)
        return any(isinstance(node.function, CollectSink) for node in nodes)

    def _record_exception(self, failure: BaseException, message: str) -> None:
        record = ExceptionRecord(
            time=time.time(),
            attempt=self._store.journal.attempt or "",
            step=failure.step if isinstance(failure, errors.UserFunctionError) else None,
            message=message,
            traceback="".join(traceback.format_exception(failure)),
        )
        self._store.history.add_exception(record)

    def _close_attempt(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def _release(self) -> None:
        self._store.lease.release()
        self._state_reader.close()
        shutil.rmtree(self._context.work_dir, ignore_errors=True)
        # Another driver on this host may use the local directory by now: remove it only if empty.
        self._context.local_dir.remove_if_empty()

    def _end(self) -> None:
        """Announce the end; called once, by the last thread of the job."""
        self._ended.set()

    @property
    def _name(self) -> str:
        return self._context.plan.job_name
