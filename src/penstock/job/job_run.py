"""One run of a job: attempt after attempt, until it has come to its end.

Every attempt begins the same way, whether the driver has just been started or the attempt before
failed in this process: win the journal, resolve the checkpoint, load state, reset sources, reset
sinks, go. Each of these is measured.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import socket
import threading
import time
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from penstock.checkpoint.decider import RequestKind
from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.history import ExceptionRecord, History, Recovery
from penstock.checkpoint.job_dir import METADATA, JobDir, JobFacts, PlannedStep
from penstock.checkpoint.journal import AttemptStarted, EndStatus, JobEnded, Journal, JournalState
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.checkpoint.settings import CheckpointSettings, ClaimMode, Retention
from penstock.checkpoint.store import CheckpointStore, Completed
from penstock.crash_points import CrashPoint, reach
from penstock.errors import (
    CheckpointFailedError,
    CorruptMetadataError,
    CorruptStateError,
    FencedError,
    NotASavepointError,
    PenstockError,
    UserFunctionError,
)
from penstock.graph.plan import Plan
from penstock.ids import AttemptId, CheckpointId
from penstock.job.attempt import Attempt, AttemptParts
from penstock.job.kept_snapshots import KeptSnapshots
from penstock.job.manifest import add_counts
from penstock.job.report import MicroBatchReport
from penstock.job.requests import Requests
from penstock.job.restore import RestoredJob, Snapshot, StateRestorer
from penstock.job.settings import JobSettings
from penstock.job.submitter import Submitter
from penstock.recovery.claim import discard_claimed
from penstock.recovery.control import Control
from penstock.recovery.lease import Lease, refuse_second_driver
from penstock.recovery.match import match
from penstock.recovery.resolve import Origin, fall_back, life_of, origins
from penstock.recovery.restart import GiveUp, Restart, RestartStrategy, decide_restart
from penstock.task.layout import Layout

logger = logging.getLogger("penstock.job")

_REPORTS_KEPT = 10_000


class JobState(Enum):
    """Where a run stands."""

    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class JobParts:
    """What a run works with; made once by the launch."""

    plan: Plan
    settings: JobSettings
    checkpoints: CheckpointSettings
    restart: RestartStrategy
    job_dir: JobDir
    work_dir: Path
    """Seen by driver and tasks; what lies there is of use to one attempt only."""
    local_dir: Path
    fresh: bool
    program: JobFacts
    make_submitter: Callable[[Plan, Layout], Submitter]


@dataclass(slots=True)
class _Stopwatch:
    """The five times of a recovery."""

    detect_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


class JobRun:
    """Runs a plan to its end, through failures as the restart strategy allows."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts
        self._dir = parts.job_dir
        self._history = History(
            self._dir.storage,
            checkpoints_kept=max(parts.checkpoints.checkpoint_history, 100),
            exceptions_kept=parts.checkpoints.exception_history,
        )
        self._journal = Journal(self._dir.storage, self._dir.key)
        self._kept = KeptSnapshots(self._dir, self._journal)
        self._lease = Lease(self._dir, parts.checkpoints.heartbeat_interval_s)
        self._requests = Requests(Control(self._dir), self) if self._outlives_the_driver else None
        self._lock = threading.Lock()
        self._reports: deque[MicroBatchReport] = deque(maxlen=_REPORTS_KEPT)
        self._counters: dict[str, dict[str, int]] = {}
        self._restarts: list[Restart] = []
        self._attempt: Attempt | None = None
        self._submitter: Submitter | None = None
        self._layout: Layout | None = None
        self._claimed: Snapshot | None = None
        self._ended = threading.Event()
        self._asked_to_end = threading.Event()
        self.cancelled = False
        self._suspended = False
        self.started = time.time()
        self.state = JobState.RUNNING
        self.failure: BaseException | None = None
        self.stopped_at: Completed | None = None

    # -- from outside -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first attempt; what makes the job impossible is raised here."""
        owner = refuse_second_driver(
            self._dir, self._parts.checkpoints.heartbeat_timeout_s, time.time()
        )
        since = getattr(owner, "since", None)
        watch = _Stopwatch(0.0 if since is None else max(0.0, time.time() - since))
        try:
            self._begin("the driver died" if since is not None else "", watch, restarting=False)
        except BaseException:
            self._discard_attempt()
            self._lease.release()
            raise
        if self._requests is not None:
            self._requests.start()
        threading.Thread(target=self._run, name="job", daemon=True).start()

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
            return {uid: dict(counts) for uid, counts in self._counters.items()}

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
        attempt = self._attempt
        coordinator = None if attempt is None else attempt.coordinator
        if coordinator is None or self._ended.is_set() or self.state is not JobState.RUNNING:
            raise CheckpointFailedError(0, "the job is not running now, or in BATCH mode")
        path = None
        if directory is not None:
            path = str(directory / f"savepoint-{self._dir.key}-{os.urandom(6).hex()}")
        if kind is RequestKind.FINAL:
            return coordinator.drain(path)
        return coordinator.ask(kind, path)

    def _end_attempt(self, *, kill: bool) -> None:
        self._asked_to_end.set()
        attempt = self._attempt
        if attempt is not None:
            (attempt.kill if kill else attempt.cancel)()

    # -- attempt after attempt --------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._run_attempt():
                pass
        except BaseException as error:
            self.failure, self.state = error, JobState.FAILED
            logger.debug("the job ended in an error of its own", exc_info=True)
        finally:
            if self._requests is not None:
                self._requests.close()
            self._lease.release()
            shutil.rmtree(self._parts.work_dir, ignore_errors=True)
            # Another driver may have taken over, on this host too: what is in there is its.
            with contextlib.suppress(OSError):
                self._parts.local_dir.rmdir()
            self._ended.set()

    def _run_attempt(self) -> bool:
        """Wait for the end of the present attempt; true if it is the job's."""
        attempt = self._attempt
        assert attempt is not None
        attempt.wait()
        failure = attempt.failure
        if failure is None:
            self._finish(attempt)
            return True
        detected = time.time()
        self._discard_attempt()
        while failure is not None:
            self._remember(failure)
            decision = decide_restart(
                self._parts.restart, failure, self._restarts, time.time(), random.random
            )
            if self._asked_to_end.is_set():
                self._finish(None)
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
                self._finish(None)
                return True
            try:
                watch = _Stopwatch(max(0.0, now - detected))
                self._begin(str(failure), watch, restarting=True)
                failure = None
            except BaseException as error:
                failure = error
                self._discard_attempt()
        self.state = JobState.RUNNING
        return False

    def _finish(self, attempt: Attempt | None) -> None:
        last = None if attempt is None else attempt.last
        ended_itself = not self.cancelled
        status = EndStatus.CANCELED
        if ended_itself:
            status = EndStatus.FINISHED
            if last is not None and last.is_savepoint:
                status, self.stopped_at = EndStatus.STOPPED, last
        reach(CrashPoint.JOB_FINISHING)
        if not self._suspended:
            path = self.stopped_at.path if self.stopped_at is not None else None
            # The end first: without it a job without checkpoints would begin anew.
            self._journal.append(JobEnded(self._attempt_id(), status, time.time(), path))
            try:
                self._tidy(self._journal.state(), status)
            except (OSError, PenstockError) as error:
                logger.warning("the job has ended, but not all of it could be removed: %s", error)
        reach(CrashPoint.JOB_FINISHED)
        self._discard_attempt()
        self.state = JobState.FINISHED if ended_itself else JobState.CANCELED

    def _tidy(self, state: JournalState, status: EndStatus) -> None:
        """Delete the checkpoints of a life that is over, unless they were to be kept.

        Those of older lives that were kept, or left alone by a fresh start, are not touched.
        """
        keeps = self._parts.checkpoints.retention is Retention.RETAIN_ON_CANCELLATION
        if status is EndStatus.CANCELED and keeps:
            return
        self._journal.check_tail()
        mine = [CheckpointId(c.checkpoint) for c in state.restorable if not c.savepoint]
        self._store(self._attempt_id()).discard(mine)
        self._kept.sweep()

    def _fail(self, failure: BaseException) -> None:
        self.failure = failure
        if not isinstance(failure, FencedError):
            try:
                self._journal.append(
                    JobEnded(self._attempt_id(), EndStatus.FAILED, time.time(), None)
                )
            except (PenstockError, OSError) as error:
                logger.warning("the end of the job cannot be written down: %s", error)
        self._discard_attempt()
        self.state = JobState.FAILED

    def _remember(self, failure: BaseException) -> None:
        step = failure.step if isinstance(failure, UserFunctionError) else None
        record = ExceptionRecord(
            time=time.time(),
            attempt=str(self._layout.attempt) if self._layout is not None else "",
            step=step,
            message=str(failure),
            traceback="".join(traceback.format_exception(failure)),
        )
        try:
            self._history.add_exception(record)
        except OSError as error:
            logger.warning("the failure cannot be written down: %s", error)

    def _attempt_id(self) -> AttemptId:
        assert self._layout is not None
        return self._layout.attempt

    def _life(self) -> str:
        assert self._layout is not None
        return self._layout.life

    def _discard_attempt(self) -> None:
        """Let go of an attempt that has ended, or that never came to run."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.close()
        if self._submitter is not None:
            self._submitter.cancel()
            self._submitter.close()
            self._submitter = None
        if self._layout is not None:
            shutil.rmtree(self._layout.root, ignore_errors=True)
            shutil.rmtree(self._layout.local_root, ignore_errors=True)

    # -- the beginning of an attempt --------------------------------------------------------

    def _begin(self, cause: str, watch: _Stopwatch, *, restarting: bool) -> None:
        parts = self._parts
        state = self._journal.state()
        given = None if restarting else parts.checkpoints.restore_path
        candidates = origins(state, given=given, fresh=parts.fresh, restarting=restarting)
        while True:
            origin = candidates.pop(0) if candidates else None
            try:
                self._begin_with(origin, state, cause, watch, restarting=restarting)
                return
            except (CorruptStateError, CorruptMetadataError, FileNotFoundError) as damage:
                if origin is None or origin.checkpoint is None:
                    raise
                self._discard_attempt()
                fall_back(
                    origin,
                    str(damage),
                    candidates,
                    parts.checkpoints.mode,
                    accept_duplicates=parts.checkpoints.accept_duplicates,
                )
                logger.warning(
                    "checkpoint %s is damaged (%s): going back to %s",
                    origin.checkpoint,
                    damage,
                    candidates[0].checkpoint,
                )
                state = self._journal.state()

    def _begin_with(
        self,
        origin: Origin | None,
        state: JournalState,
        cause: str,
        watch: _Stopwatch,
        *,
        restarting: bool,
    ) -> None:
        parts = self._parts
        snapshot = None if origin is None else self._read(origin)
        plan = parts.plan
        if snapshot is not None:
            plan = match(
                plan,
                snapshot.metadata,
                str(snapshot.path),
                allow_non_restored=parts.checkpoints.allow_non_restored_state,
            )
            if not snapshot.is_own and parts.checkpoints.claim_mode is ClaimMode.CLAIM:
                self._claimed = snapshot
        attempt_id = state.next_attempt
        life = life_of(
            state,
            attempt_id,
            None if snapshot is None else self._life_of(snapshot, attempt_id),
            fresh=parts.fresh,
            restarting=restarting,
        )
        self._layout = layout = Layout(
            parts.work_dir, parts.local_dir, attempt_id, self._dir.path, self._dir.key, life
        )
        self._win(attempt_id, snapshot, origin, restarting=restarting)
        if state.ended is not None and state.is_over:
            # A driver that died behind the end of the life before had no time for this.
            self._tidy(state, state.ended.status)
        self._kept.remove_leftovers(layout)
        store = self._store(attempt_id)
        reach(CrashPoint.RECOVERY_RESOLVED)
        self._submitter = parts.make_submitter(plan, layout)
        watch.lap("redeploy")
        files = FileKeeper()
        restored = RestoredJob()
        if snapshot is not None:
            restored = StateRestorer(plan, layout, parts.settings, self._submitter).restore(
                snapshot
            )
        positions = self._kept.hold(files)
        reach(CrashPoint.RECOVERY_STATE_LOADED)
        watch.lap("load state")
        checkpoint = (
            CheckpointId(0) if snapshot is None else CheckpointId(snapshot.metadata.checkpoint)
        )
        attempt = self._attempt = Attempt(
            AttemptParts(
                plan=plan,
                layout=layout,
                settings=parts.settings,
                checkpoints=parts.checkpoints,
                store=store,
                submitter=self._submitter,
                files=files,
                restored=restored,
                restored_from=checkpoint,
                positions=positions,
                on_completed=self._completed,
                held_by_sinks=self._kept.held_by_sinks,
                report=self._take_report,
            )
        )
        attempt.reset_sources()
        watch.lap("reset sources")
        attempt.reset_sinks()
        watch.lap("reset sinks")
        if cause or snapshot is not None:
            self._tell_recovery(attempt_id, snapshot, cause, watch)
        attempt.start()
        if self._asked_to_end.is_set():
            attempt.cancel()

    def _win(
        self,
        attempt: AttemptId,
        snapshot: Snapshot | None,
        origin: Origin | None,
        *,
        restarting: bool,
    ) -> None:
        given = self._parts.checkpoints.restore_path
        self._journal.append(
            AttemptStarted(
                attempt=attempt,
                time=time.time(),
                host=socket.gethostname(),
                pid=os.getpid(),
                restored=None if origin is None else origin.checkpoint,
                restored_path=None if snapshot is None else self._dir.named(str(snapshot.path)),
                given_path=None if given is None else str(given),
                fresh=self._parts.fresh and not restarting,
                life=self._life(),
                work_dirs=[str(self._parts.work_dir), str(self._parts.local_dir)],
            )
        )
        reach(CrashPoint.RECOVERY_ATTEMPT_WON)
        self._lease.take(attempt)
        steps = [
            PlannedStep(n.uid, n.name, n.parallelism)
            for s in self._parts.plan.stages
            for n in s.nodes
        ]
        program = self._parts.program
        self._dir.write_facts(
            JobFacts(program.name, program.created, program.program, program.args, steps)
        )

    def _read(self, origin: Origin) -> Snapshot:
        path = self._dir.located(str(origin.path))
        path = path.parent if path.name == METADATA else path
        file = path / METADATA
        if origin.checkpoint is None and not file.exists():
            raise NotASavepointError(str(origin.path), f"there is no {METADATA} in it")
        data = file.read_bytes()
        metadata = decode_metadata(data, str(file))
        if origin.crc is not None and zlib.crc32(data) != origin.crc:
            raise CorruptMetadataError(str(file), "it is not the file that the journal means")
        return Snapshot(metadata, path, is_own=origin.checkpoint is not None)

    def _life_of(self, snapshot: Snapshot, attempt: AttemptId) -> str:
        metadata = snapshot.metadata
        # What another job's connectors kept stays with that job.
        return (
            metadata.properties.get("life", attempt)
            if metadata.job_id == self._dir.key
            else attempt
        )

    def _store(self, attempt: AttemptId) -> CheckpointStore:
        return CheckpointStore(
            self._dir,
            self._journal,
            attempt,
            self._parts.plan.job_name,
            self._parts.checkpoints.retained,
            self._history,
            self._life(),
        )

    def _completed(self, completed: Completed) -> None:
        claimed = self._claimed
        if claimed is not None and not completed.is_savepoint:
            self._claimed = None
            try:
                discard_claimed(claimed.path, claimed.metadata)
            except (OSError, PenstockError) as error:
                logger.warning("claimed %s cannot be deleted: %s", claimed.path, error)

    def _tell_recovery(
        self, attempt: AttemptId, snapshot: Snapshot | None, cause: str, watch: _Stopwatch
    ) -> None:
        times = watch.seconds
        recovery = Recovery(
            attempt=attempt,
            checkpoint=None if snapshot is None else snapshot.metadata.checkpoint,
            cause=cause or "started from a snapshot",
            detect_s=watch.detect_s,
            redeploy_s=times.get("redeploy", 0.0),
            load_state_s=times.get("load state", 0.0),
            reset_sources_s=times.get("reset sources", 0.0),
            reset_sinks_s=times.get("reset sinks", 0.0),
            time=time.time(),
        )
        self._history.add_recovery(recovery)
        what = "from the beginning" if snapshot is None else f"from {snapshot.path}"
        logger.warning(
            "job %r goes on %s: detect %.2f s, redeploy %.2f s, load state %.2f s, "
            "reset sources %.2f s, reset sinks %.2f s",
            self._parts.plan.job_name,
            what,
            recovery.detect_s,
            recovery.redeploy_s,
            recovery.load_state_s,
            recovery.reset_sources_s,
            recovery.reset_sinks_s,
        )

    def _take_report(
        self, report: MicroBatchReport, counters: Mapping[str, Mapping[str, int]]
    ) -> None:
        with self._lock:
            self._reports.append(report)
            add_counts(self._counters, counters)
