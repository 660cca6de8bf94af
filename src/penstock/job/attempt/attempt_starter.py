"""Starts an attempt, for a new driver and for a restart alike.

Choose a snapshot, win the journal, load state, reset sources, reset sinks, start the loops. An
attempt wins the journal by appending its `AttemptStarted`: every older driver is fenced from then
on. Each phase is measured. If the driver is killed in any of them, the next attempt starts from
the same snapshot.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from penstock.checkpoint.coordinator.load_tracker import LoadTracker
from penstock.checkpoint.coordinator.stats_tracker import CheckpointStatsTracker
from penstock.checkpoint.settings import ClaimMode
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.job_facts import with_plan
from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    ClaimedSnapshot,
    JournalState,
)
from penstock.checkpoint.storage.metadata import LINEAGE
from penstock.crash_points import CrashPoint, reach
from penstock.errors import CorruptMetadataError, CorruptStateError, PenstockError
from penstock.graph.plan import Plan
from penstock.graph.regions import upstream_regions
from penstock.ids import AttemptId
from penstock.job.attempt.attempt import Attempt
from penstock.job.attempt.host_cleanup import HostCleanup
from penstock.job.attempt.inputs import close_quietly, create_logs
from penstock.job.attempt.program_check import checking_program
from penstock.job.attempt.recovery_timer import RecoveryPhase, RecoveryTimer
from penstock.job.attempt.shared_paths import check_shared_paths, remove_relays
from penstock.job.context import AttemptContext, JobContext
from penstock.job.figures.job_monitor import JobMonitor
from penstock.job.job_store import JobStore
from penstock.job.next_steps import log_start
from penstock.job.reports import ReportListener
from penstock.job.restore.pickled_data import is_in_own_directory, reject_pickled
from penstock.job.restore.snapshot_reader import (
    Snapshot,
    is_of_this_job,
    read_snapshot,
    verify_snapshot,
)
from penstock.job.restore.state_restorer import RestoredJob, StateRestorer
from penstock.recovery.channel_matching import channel_endpoints, match_channels
from penstock.recovery.operator_matching import match_operators
from penstock.recovery.restore_candidates import (
    RestoreCandidate,
    check_fallback,
    lineage_of,
    restore_candidates,
)
from penstock.task.layout import AttemptLayout

logger = logging.getLogger("penstock.job")


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that was started, and the resources it holds."""

    attempt: Attempt
    _resources: contextlib.ExitStack

    def close(self) -> None:
        """Release the engine and all files of an attempt that has ended."""
        self._resources.close()


@dataclass(frozen=True, slots=True)
class _Start:
    """One call of `AttemptStarter.start`."""

    cause: str
    restarting: bool
    timer: RecoveryTimer


class AttemptStarter:
    """Starts the attempts of one job, one after the other."""

    def __init__(
        self, context: JobContext, store: JobStore, report: ReportListener, monitor: JobMonitor
    ) -> None:
        self._context = context
        self._store = store
        self._monitor = monitor
        self._dir = context.job_dir
        self._report = report
        self._claimed: ClaimedSnapshot | None = None
        """A snapshot that the job owns and deletes after its next own checkpoint."""

    def start(self, cause: str, detect_s: float, *, restarting: bool) -> RunningAttempt:
        """Start an attempt from the best snapshot that can be read.

        `cause` is what ended the attempt before, empty if nothing did. If this raises, nothing of
        the attempt is left. Unless sinks may have committed something, the journal lets the next
        attempt start from the same snapshot.

        Raises:
            BadCheckpointError: the newest checkpoint is damaged, and no older one may be used.
        """
        start = _Start(cause, restarting, RecoveryTimer(detect_s))
        settings = self._context.checkpoints
        state = self._store.journal.state()
        candidates = restore_candidates(
            state,
            given=None if restarting else settings.restore_path,
            fresh=self._context.fresh,
            restarting=restarting,
        )
        while True:
            candidate = candidates.pop(0) if candidates else None
            try:
                return self._start_from(candidate, state, start)
            except _DamagedSnapshotError as damaged:
                damage = damaged.damage
                if candidate is None or candidate.checkpoint is None:
                    raise damage from None
                check_fallback(
                    candidate,
                    str(damage),
                    candidates,
                    settings.mode,
                    accept_duplicates=settings.accept_duplicates,
                )
                logger.warning(
                    "Checkpoint %s is damaged (%s): falling back to %s",
                    candidate.checkpoint,
                    damage,
                    candidates[0].checkpoint,
                )
                state = self._store.journal.state()

    def _start_from(
        self, candidate: RestoreCandidate | None, state: JournalState, start: _Start
    ) -> RunningAttempt:
        start.timer.lap(RecoveryPhase.REDEPLOY)
        plan, snapshot = self._context.plan, None
        if candidate is not None:
            plan, snapshot = self._match(self._read(candidate, state, start), state)
        start.timer.lap(RecoveryPhase.LOAD_STATE)
        layout = self._layout(state, snapshot, start)
        try:
            self._win_journal(layout, snapshot, state, start)
            if not start.restarting:
                log_start(self._context, state, None if snapshot is None else snapshot.path)
            if state.is_over:
                # A driver that died right after the job's end could not do this.
                self._store.tidy(state)
            with contextlib.ExitStack() as resources:
                attempt = self._prepare(plan, layout, snapshot, start.timer, resources)
                if start.cause or snapshot is not None:
                    self._log_recovery(attempt, layout.attempt, snapshot, start)
                self._claimed = self._store.journal.state().claimed
                try:
                    attempt.start()
                except BaseException:
                    attempt.kill()
                    raise
                return RunningAttempt(attempt, resources.pop_all())
        except BaseException:
            self._store.start_failed(layout.attempt)
            raise

    # -- choosing a snapshot ----------------------------------------------------------------

    def _read(self, candidate: RestoreCandidate, state: JournalState, start: _Start) -> Snapshot:
        with _detecting_damage():
            snapshot = read_snapshot(self._dir, candidate)
            if not snapshot.is_own and not start.restarting:
                # From here on the job ignores its own checkpoints: this one must be intact.
                verify_snapshot(snapshot)
            return snapshot

    def _match(self, snapshot: Snapshot, state: JournalState) -> tuple[Plan, Snapshot]:
        """Match operators and channels of the plan with those of a snapshot."""
        metadata, path = snapshot.metadata, str(snapshot.path)
        settings = self._context.checkpoints
        allow = settings.allow_non_restored_state
        with checking_program(self._context, snapshot):
            plan = match_operators(self._context.plan, metadata, path, allow_non_restored=allow)
            in_flight = match_channels(plan, metadata, path, allow_non_restored=allow)
        may_unpickle = settings.allow_pickle or is_in_own_directory(
            snapshot, self._dir, settings.savepoint_directory, state
        )
        snapshot = replace(snapshot, in_flight=in_flight, may_unpickle=may_unpickle)
        if not may_unpickle:
            with _detecting_damage():
                reject_pickled(plan, snapshot)
        return plan, snapshot

    def _layout(
        self, state: JournalState, snapshot: Snapshot | None, start: _Start
    ) -> AttemptLayout:
        attempt, context = state.next_attempt, self._context
        lineage = lineage_of(
            state,
            attempt,
            None if snapshot is None else self._lineage_of(snapshot, attempt),
            fresh=context.fresh,
            restarting=start.restarting,
        )
        return AttemptLayout(
            context.work_dir,
            context.local_dir,
            attempt,
            self._dir.path,
            self._dir.key,
            lineage,
            self._dir.job_instance(),
        )

    def _lineage_of(self, snapshot: Snapshot, attempt: AttemptId) -> str:
        # Connector files of another job stay with that job, even if it has the same id.
        is_own_job = is_of_this_job(self._dir, snapshot)
        return snapshot.metadata.properties.get(LINEAGE, attempt) if is_own_job else attempt

    # -- winning the journal ----------------------------------------------------------------

    def _win_journal(
        self, layout: AttemptLayout, snapshot: Snapshot | None, state: JournalState, start: _Start
    ) -> None:
        """Append `AttemptStarted`, which fences every older driver; then take the lease."""
        context, given = self._context, self._context.checkpoints.restore_path
        restored = path = None
        if snapshot is not None:
            restored = snapshot.metadata.checkpoint if snapshot.is_own else None
            path = self._dir.to_journal_path(str(snapshot.path))
        self._store.journal.append(
            AttemptStarted(
                attempt=layout.attempt,
                time=time.time(),
                host=socket.gethostname(),
                pid=os.getpid(),
                restored=restored,
                restored_path=path,
                given_path=None if given is None else str(given),
                fresh=context.fresh and not start.restarting,
                lineage=layout.lineage,
                work_dirs=[str(context.work_dir), str(context.local_dir.resolve())],
                restored_crc=None if snapshot is None else snapshot.crc,
                claims=restored is None and self._claims(path, state),
                left_out=[] if snapshot is None else _left_out(context.plan, snapshot),
            )
        )
        reach(CrashPoint.RECOVERY_ATTEMPT_WON)
        self._store.lease.take(layout.attempt, initializing=not start.restarting)
        self._dir.write_facts(with_plan(context.program, context.plan))

    def _claims(self, path: str | None, state: JournalState) -> bool:
        settings = self._context.checkpoints
        if path is None or settings.claim_mode is ClaimMode.CLAIM:
            return path is not None
        # A driver that is started without options continues what the one that died has begun.
        is_claimed = state.claimed is not None and state.claimed.path == path
        return settings.restore_path is None and is_claimed

    # -- preparing the attempt --------------------------------------------------------------

    def _prepare(
        self,
        plan: Plan,
        layout: AttemptLayout,
        snapshot: Snapshot | None,
        timer: RecoveryTimer,
        resources: contextlib.ExitStack,
    ) -> Attempt:
        """Load state, reset sources and sinks; `resources` release what the attempt acquires."""
        job, store = self._context, self._store
        resources.callback(shutil.rmtree, layout.root, ignore_errors=True)
        store.retained.remove_leftovers(layout)
        remove_relays(job.job_dir, layout.attempt)
        restored_id = 0 if snapshot is None else snapshot.metadata.checkpoint
        checkpoints = store.checkpoints(layout.attempt, layout.lineage, restored_id)
        reach(CrashPoint.RECOVERY_RESOLVED)
        regions = job.regions(plan, () if snapshot is None else snapshot.in_flight)
        layout = replace(layout, unshared=check_shared_paths(job, plan))
        # Tasks on hosts that join later look for it.
        layout.root.mkdir(parents=True, exist_ok=True)
        if layout.unshared is not None:
            resources.callback(close_quietly, partial(remove_relays, job.job_dir, layout.attempt))
        for directory in layout.attempt_dirs:
            resources.callback(directory.leave)
        submitter = job.make_submitter(regions, layout)
        resources.callback(close_quietly, submitter.close)
        resources.callback(close_quietly, submitter.cancel)
        cleanup = HostCleanup(plan, layout, submitter, is_restored=snapshot is not None)
        timer.lap(RecoveryPhase.REDEPLOY)
        restored = RestoredJob()
        if snapshot is not None:
            with _detecting_damage():
                restored = StateRestorer(plan, layout, job.settings, submitter).restore(snapshot)
            reach(CrashPoint.RECOVERY_IN_FLIGHT_RESTORED)
        registry = SharedStateRegistry(files_are_here=layout.unshared is None)
        resources.callback(close_quietly, registry.close)
        positions = store.retained.register(registry)
        reach(CrashPoint.RECOVERY_STATE_LOADED)
        timer.lap(RecoveryPhase.LOAD_STATE)
        load = LoadTracker(upstream_regions(regions))
        attempt = Attempt(
            AttemptContext(
                job=job,
                plan=plan,
                regions=regions,
                layout=layout,
                store=checkpoints,
                stats=CheckpointStatsTracker(
                    store.history,
                    layout.attempt,
                    ended=self._monitor.checkpoint_ended,
                    load=load,
                ),
                monitor=self._monitor,
                load=load,
                submitter=submitter,
                registry=registry,
                retained=store.retained,
                positions=positions,
                restored=restored,
                logs=create_logs(plan, regions, job.settings, restored.channels),
                endpoints=channel_endpoints(plan),
                on_completed=self._discard_claimed,
                report=cleanup.seeing(self._report),
                check_owner=store.lease.check,
            )
        )
        resources.callback(close_quietly, attempt.close)
        resources.callback(close_quietly, lambda: cleanup.run(is_over=attempt.failure is None))
        attempt.reset_sources()
        timer.lap(RecoveryPhase.RESET_SOURCES)
        attempt.reset_sinks()
        timer.lap(RecoveryPhase.RESET_SINKS)
        return attempt

    def _log_recovery(
        self, attempt: Attempt, attempt_id: AttemptId, snapshot: Snapshot | None, start: _Start
    ) -> None:
        cause = start.cause or "started from a snapshot"
        metadata = None if snapshot is None else snapshot.metadata
        recovery = start.timer.recovery(attempt_id, metadata, cause)
        attempt.record_recovery(recovery)
        if snapshot is not None:
            self._monitor.restored()
        logger.warning(
            "Job %r resumes from %s: detect %.2f s, redeploy %.2f s, load state %.2f s, "
            "reset sources %.2f s, reset sinks %.2f s",
            self._context.plan.job_name,
            "the beginning" if snapshot is None else snapshot.path,
            recovery.detect_s,
            recovery.redeploy_s,
            recovery.load_state_s,
            recovery.reset_sources_s,
            recovery.reset_sinks_s,
        )

    def _discard_claimed(self, completed: CompletedCheckpoint) -> None:
        """Delete a claimed snapshot once the job has a checkpoint of its own."""
        claimed = self._claimed
        if claimed is None or completed.is_savepoint:
            return
        self._claimed = None
        try:
            self._store.discard_claimed(claimed)
        except (OSError, PenstockError) as error:
            logger.warning("Claimed snapshot %s cannot be deleted: %s", claimed.path, error)


def _left_out(plan: Plan, snapshot: Snapshot) -> list[str]:
    """Return the uids of sinks with pending output that a program no longer has."""
    uids = {node.uid for stage in plan.stages for node in stage.nodes}
    operators = snapshot.metadata.operators
    return [o.uid for o in operators if o.uid not in uids and snapshot.committed.pending(o)]


class _DamagedSnapshotError(Exception):
    """A snapshot is damaged, so that another one may be tried."""

    def __init__(self, damage: PenstockError) -> None:
        super().__init__(damage)
        self.damage = damage


@contextlib.contextmanager
def _detecting_damage() -> Iterator[None]:
    """Raise `_DamagedSnapshotError` for damage, so that the caller can try an older snapshot."""
    try:
        yield
    except (CorruptStateError, CorruptMetadataError) as damage:
        raise _DamagedSnapshotError(damage) from damage
    except FileNotFoundError as error:
        missing = CorruptStateError(str(error.filename or error), "it is missing")
        raise _DamagedSnapshotError(missing) from error
