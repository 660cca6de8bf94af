"""One run of a job: attempt after attempt, until it has come to its end."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from enum import Enum
from pathlib import Path

from penstock.checkpoint.decider import RequestKind
from penstock.checkpoint.history import ExceptionRecord
from penstock.checkpoint.journal import EndStatus, JobEnded
from penstock.checkpoint.store import Completed
from penstock.common.metric_figures import MetricInfo
from penstock.crash_points import CrashPoint, reach
from penstock.errors import (
    CheckpointFailedError,
    FencedError,
    PenstockError,
    UncommittedOutputError,
    UserFunctionError,
)
from penstock.job.attempt import Attempt
from penstock.job.beginning import Beginning, Begun
from penstock.job.books import Books, JobParts
from penstock.job.channel_view import ChannelView
from penstock.job.metrics import JobMetrics
from penstock.job.report import MicroBatchReport
from penstock.job.requests import Requests
from penstock.recovery.control import Control
from penstock.recovery.lease import refuse_second_driver
from penstock.recovery.restart import GiveUp, Restart, decide_restart
from penstock.recovery.supervisor import driver_died, supervised_since

__all__ = ["JobParts", "JobRun", "JobState"]

logger = logging.getLogger("penstock.job")

_REPORTS_KEPT = 10_000


class JobState(Enum):
    """Where a run stands."""

    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class JobRun:
    """Runs a plan to its end, through failures as the restart strategy allows."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts
        self._dir = parts.job_dir
        self._books = Books(parts)
        self._beginning = Beginning(parts, self._books, self._take_report)
        self._requests = Requests(Control(self._dir), self) if self._outlives_the_driver else None
        self._lock = threading.Lock()
        self._reports: deque[MicroBatchReport] = deque(maxlen=_REPORTS_KEPT)
        self._metrics = JobMetrics()
        self._restarts: list[Restart] = []
        self._begun: Begun | None = None
        self._ended = threading.Event()
        self._asked_to_end = threading.Event()
        self._killed = False
        self.cancelled = False
        self._suspended = False
        self.started = time.time()
        self.state = JobState.RUNNING
        self.failure: BaseException | None = None
        self.stopped_at: Completed | None = None

    # -- from outside -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first attempt; what makes the job impossible is raised here."""
        if self._is_over_already():
            logger.warning("job %r had ended when its driver died", self._parts.plan.job_name)
            self.state = JobState.FINISHED
            self._ended.set()
            return
        owner = refuse_second_driver(
            self._dir, self._parts.checkpoints.heartbeat_timeout_s, time.time()
        )
        heard = getattr(owner, "since", None)
        detect_s = 0.0 if heard is None else time.time() - max(heard, driver_died() or heard)
        cause = "" if heard is None else "the driver died"
        try:
            self._begin(cause, max(0.0, detect_s), restarting=False)
        except BaseException:
            self._leave()
            raise
        if self._requests is not None:
            self._requests.start()
        threading.Thread(target=self._run, name="job", daemon=True).start()

    def _is_over_already(self) -> bool:
        """Whether a driver died behind the end of the job, and was started again for nothing."""
        since, state = supervised_since(), self._books.journal.state()
        if since is None or state.ended is None or not state.is_over:
            return False
        by = next((a for a in state.attempts if a.attempt == state.ended.attempt), None)
        # The same program may run the same job twice, one after the other.
        return state.ended.time >= since and by is not None and by.pid != os.getpid()

    def cancel(self) -> None:
        """End between micro-batches: what is running is still published."""
        self.cancelled = True
        self._end_attempt(kill=False)

    def suspend(self) -> None:
        """End between micro-batches, to be gone on with from the last checkpoint."""
        self._suspended = self._outlives_the_driver
        self.cancel()

    def kill(self) -> None:
        """End now: what is running is thrown away."""
        self.cancelled = True
        self._end_attempt(kill=True)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end; false if it has not come in time."""
        return self._ended.wait(seconds)

    def reports(self) -> list[MicroBatchReport]:
        """Return the newest published micro-batches, oldest first."""
        with self._lock:
            return list(self._reports)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return what functions counted in published micro-batches, by operator uid."""
        with self._lock:
            return self._metrics.counters()

    def metrics(self) -> list[MetricInfo]:
        """Return what functions measured in published micro-batches."""
        names = {str(n.uid): n.name for s in self._parts.plan.stages for n in s.nodes}
        with self._lock:
            return self._metrics.facts(names)

    def channels(self) -> ChannelView | None:
        """Return the channels of the present attempt, None between two of them and at the end."""
        begun = self._begun
        return None if begun is None else begun.attempt.channels()

    def checkpoint(self) -> Future[Completed]:
        """Ask for a checkpoint now."""
        return self._ask(RequestKind.MANUAL, None)

    def savepoint(self, directory: Path | None) -> Future[Completed]:
        """Ask for a savepoint; the job goes on."""
        return self._ask(RequestKind.SAVEPOINT, directory or self._savepoint_dir())

    def stop(self, directory: Path | None, *, drain: bool) -> Future[Completed]:
        """Ask for a savepoint behind which the job ends."""
        kind = RequestKind.FINAL if drain else RequestKind.STOP
        return self._ask(kind, directory or self._savepoint_dir())

    @property
    def _outlives_the_driver(self) -> bool:
        return self._parts.checkpoints.directory is not None

    def _savepoint_dir(self) -> Path:
        directory = self._parts.checkpoints.savepoint_directory
        if directory is None:
            message = (
                "there is no place for the savepoint: name a directory, or set "
                "execution.checkpointing.savepoint-dir"
            )
            raise CheckpointFailedError(0, message)
        return directory

    def _ask(self, kind: RequestKind, directory: Path | None) -> Future[Completed]:
        begun = self._begun
        coordinator = None if begun is None else begun.attempt.coordinator
        if coordinator is None or self._ended.is_set() or self.state is not JobState.RUNNING:
            raise CheckpointFailedError(0, "the job is not running now, or in BATCH mode")
        path = None
        if directory is not None:
            path = str(directory / f"savepoint-{self._dir.key}-{os.urandom(6).hex()}")
        if kind is RequestKind.FINAL:
            return coordinator.drain(path)
        return coordinator.ask(kind, path)

    def _end_attempt(self, *, kill: bool) -> None:
        self._killed = self._killed or kill
        self._asked_to_end.set()
        begun = self._begun
        if begun is None:
            return
        if self._killed:
            begun.attempt.kill()
        else:
            begun.attempt.cancel(for_good=not self._suspended)

    # -- attempt after attempt --------------------------------------------------------------

    def _begin(self, cause: str, detect_s: float, *, restarting: bool) -> None:
        self._begun = self._beginning.begin(cause, detect_s, restarting=restarting)
        if self._asked_to_end.is_set():
            self._end_attempt(kill=self._killed)

    def _run(self) -> None:
        try:
            while not self._run_attempt():
                pass
        except BaseException as error:
            self.failure, self.state = error, JobState.FAILED
            logger.debug("the job ended in an error of its own", exc_info=True)
        finally:
            self._let_go()
            if self._requests is not None:
                self._requests.close()
            self._leave()
            self._ended.set()

    def _run_attempt(self) -> bool:
        """Wait for the end of the present attempt; true if it is the job's."""
        assert self._begun is not None
        attempt = self._begun.attempt
        attempt.wait()
        failure = attempt.failure
        if failure is None:
            self._finish(attempt)
            return True
        detected = time.time()
        self._let_go()
        while failure is not None:
            self._remember(failure)
            decision = decide_restart(
                self._parts.restart, failure, self._restarts, time.time(), random.random
            )
            if self._asked_to_end.is_set():
                self._finish_behind(failure)
                return True
            if isinstance(decision, GiveUp) or isinstance(failure, FencedError):
                self._fail(failure)
                return True
            now = time.time()
            if decision.counts:
                self._restarts.append(Restart(now, now + decision.seconds))
            logger.warning(
                "job %r failed and starts again in %.1f s: %s",
                self._parts.plan.job_name,
                decision.seconds,
                failure,
            )
            self.state = JobState.RESTARTING
            if self._asked_to_end.wait(decision.seconds):
                self._finish_behind(failure)
                return True
            try:
                self._begin(str(failure), max(0.0, now - detected), restarting=True)
                failure = None
            except BaseException as error:
                failure = error
        self.state = JobState.RUNNING
        return False

    def _finish(self, attempt: Attempt | None) -> None:
        last = None if attempt is None else attempt.last
        ended_itself = not self.cancelled
        if self.cancelled and not self._suspended and (owed := self._books.kept.uncommitted()):
            # A cancelled job's checkpoints are deleted, and this one holds what nobody else has.
            self._fail(UncommittedOutputError(self._parts.plan.job_name, *owed))
            return
        status = EndStatus.CANCELED
        if ended_itself:
            status = EndStatus.FINISHED
            if last is not None and last.is_savepoint:
                status, self.stopped_at = EndStatus.STOPPED, last
        reach(CrashPoint.JOB_FINISHING)
        if not self._suspended:
            path = self.stopped_at.path if self.stopped_at is not None else None
            # The end first: without it a job without checkpoints would begin anew.
            self._write_end(status, path)
            try:
                self._books.tidy(self._books.journal.state())
            except (OSError, PenstockError) as error:
                logger.warning("the job has ended, but not all of it could be removed: %s", error)
        reach(CrashPoint.JOB_FINISHED)
        self.state = JobState.FINISHED if ended_itself else JobState.CANCELED

    def _finish_behind(self, failure: BaseException) -> None:
        """End a job that was asked to between a failure and the next attempt."""
        try:
            self._finish(None)
        except (OSError, PenstockError) as error:
            logger.warning("the end of the job cannot be written down: %s", error)
            self.failure, self.state = failure, JobState.FAILED

    def _fail(self, failure: BaseException) -> None:
        self.failure = failure
        if not isinstance(failure, FencedError):
            try:
                self._write_end(EndStatus.FAILED, None)
            except (PenstockError, OSError) as error:
                logger.warning("the end of the job cannot be written down: %s", error)
        self.state = JobState.FAILED

    def _write_end(self, status: EndStatus, savepoint: str | None) -> None:
        # Of the attempt that won last, whether it came to run or not.
        attempt = self._books.journal.attempt
        assert attempt is not None
        self._books.journal.append(JobEnded(attempt, status, time.time(), savepoint))

    def _remember(self, failure: BaseException) -> None:
        step = failure.step if isinstance(failure, UserFunctionError) else None
        record = ExceptionRecord(
            time=time.time(),
            attempt=self._books.journal.attempt or "",
            step=step,
            message=str(failure),
            traceback="".join(traceback.format_exception(failure)),
        )
        try:
            self._books.history.add_exception(record)
        except OSError as error:
            logger.warning("the failure cannot be written down: %s", error)

    def _let_go(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.close()

    def _leave(self) -> None:
        self._books.lease.release()
        shutil.rmtree(self._parts.work_dir, ignore_errors=True)
        # Another driver may have taken over, on this host too: what is in there is its.
        with contextlib.suppress(OSError):
            self._parts.local_dir.here().rmdir()

    def _take_report(
        self, report: MicroBatchReport, counters: Mapping[str, Mapping[str, int]]
    ) -> None:
        with self._lock:
            self._reports.append(report)
            self._metrics.take(counters, report.figures)
