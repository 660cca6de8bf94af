"""The beginning of an attempt, the same for a new driver and for a restart in its process.

Resolve the snapshot, win the journal, load state, reset sources, reset sinks, go. Each of these is
measured.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.job_dir import JobFacts, PlannedStep
from penstock.checkpoint.journal import AttemptStarted, JournalState
from penstock.checkpoint.settings import ClaimMode
from penstock.checkpoint.store import Completed
from penstock.crash_points import CrashPoint, reach
from penstock.errors import CorruptMetadataError, CorruptStateError, PenstockError
from penstock.graph.plan import Plan
from penstock.ids import AttemptId, CheckpointId
from penstock.job.attempt import Attempt, AttemptParts
from penstock.job.books import Books, JobParts
from penstock.job.host_cleanup import HostCleanup, TakeReport
from penstock.job.restore import RestoredJob, Snapshot, StateRestorer
from penstock.job.snapshot_reading import prove, read_snapshot
from penstock.job.stopwatch import Part, Stopwatch
from penstock.recovery.channels import match_channels
from penstock.recovery.claim import discard_claimed
from penstock.recovery.match import match
from penstock.recovery.resolve import Origin, fall_back, life_of, origins
from penstock.task.layout import Layout

logger = logging.getLogger("penstock.job")


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that runs, and what it holds."""

    attempt: Attempt
    _held: contextlib.ExitStack

    def close(self) -> None:
        """Let go of the engine and of all files of an attempt that has ended."""
        self._held.close()


class Beginning:
    """Begins the attempts of one run, one after the other."""

    def __init__(self, parts: JobParts, books: Books, report: TakeReport) -> None:
        self._parts = parts
        self._books = books
        self._dir = parts.job_dir
        self._report = report
        self._claim = _Claim()

    def begin(self, cause: str, detect_s: float, *, restarting: bool) -> Begun:
        """Begin an attempt with the best snapshot there is.

        `cause` is what ended the attempt before, empty if nothing did. If it raises, nothing of the
        attempt is left, and unless sinks may have shown something, the journal lets the next one
        begin where this one did.

        Raises:
            BadCheckpointError: the newest checkpoint is damaged, and no older one may be taken.
        """
        parts, watch = self._parts, Stopwatch(detect_s)
        state = self._books.journal.state()
        given = None if restarting else parts.checkpoints.restore_path
        candidates = origins(state, given=given, fresh=parts.fresh, restarting=restarting)
        while True:
            origin = candidates.pop(0) if candidates else None
            try:
                return self._begin_with(origin, state, cause, watch, restarting=restarting)
            except _DamagedSnapshotError as damaged:
                damage = damaged.damage
                if origin is None or origin.checkpoint is None:
                    raise damage from None
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
                state = self._books.journal.state()

    def _begin_with(
        self,
        origin: Origin | None,
        state: JournalState,
        cause: str,
        watch: Stopwatch,
        *,
        restarting: bool,
    ) -> Begun:
        watch.lap(Part.REDEPLOY)
        snapshot = None if origin is None else self._read(origin, restarting=restarting)
        watch.lap(Part.LOAD_STATE)
        plan = self._matched(snapshot)
        snapshot = self._with_channels(plan, snapshot)
        layout = self._layout(state, snapshot, restarting=restarting)
        try:
            self._win(layout, snapshot, origin, restarting=restarting)
            if state.is_over:
                # A driver that died behind the end of the life before had no time for this.
                self._books.tidy(state)
            with contextlib.ExitStack() as held:
                attempt = self._prepared(plan, layout, snapshot, watch, held)
                if cause or snapshot is not None:
                    self._tell_recovery(layout.attempt, snapshot, cause, watch)
                if snapshot is not None and self._claims(snapshot):
                    self._claim.take(snapshot)
                _start(attempt)
                return Begun(attempt, held.pop_all())
        except BaseException:
            self._books.start_failed(layout.attempt)
            raise

    def _read(self, origin: Origin, *, restarting: bool) -> Snapshot:
        with _telling_damage():
            snapshot = read_snapshot(self._dir, origin)
            if not snapshot.is_own and not restarting:
                # What makes the job turn away from its own checkpoints must be good.
                prove(snapshot)
            return snapshot

    def _matched(self, snapshot: Snapshot | None) -> Plan:
        if snapshot is None:
            return self._parts.plan
        return match(
            self._parts.plan,
            snapshot.metadata,
            str(snapshot.path),
            allow_non_restored=self._parts.checkpoints.allow_non_restored_state,
        )

    def _with_channels(self, plan: Plan, snapshot: Snapshot | None) -> Snapshot | None:
        if snapshot is None:
            return None
        in_flight = match_channels(
            plan,
            snapshot.metadata,
            str(snapshot.path),
            allow_non_restored=self._parts.checkpoints.allow_non_restored_state,
        )
        return replace(snapshot, in_flight=in_flight)

    def _layout(
        self, state: JournalState, snapshot: Snapshot | None, *, restarting: bool
    ) -> Layout:
        parts, attempt = self._parts, state.next_attempt
        life = life_of(
            state,
            attempt,
            None if snapshot is None else self._life_of(snapshot, attempt),
            fresh=parts.fresh,
            restarting=restarting,
        )
        return Layout(
            parts.work_dir,
            parts.local_dir,
            attempt,
            self._dir.path,
            self._dir.key,
            life,
            self._dir.birth(),
        )

    def _life_of(self, snapshot: Snapshot, attempt: AttemptId) -> str:
        metadata = snapshot.metadata
        # What another job's connectors kept stays with that job.
        return (
            metadata.properties.get("life", attempt)
            if metadata.job_id == self._dir.key
            else attempt
        )

    def _win(
        self,
        layout: Layout,
        snapshot: Snapshot | None,
        origin: Origin | None,
        *,
        restarting: bool,
    ) -> None:
        given = self._parts.checkpoints.restore_path
        self._books.journal.append(
            AttemptStarted(
                attempt=layout.attempt,
                time=time.time(),
                host=socket.gethostname(),
                pid=os.getpid(),
                restored=None if origin is None else origin.checkpoint,
                restored_path=None if snapshot is None else self._dir.named(str(snapshot.path)),
                given_path=None if given is None else str(given),
                fresh=self._parts.fresh and not restarting,
                life=layout.life,
                work_dirs=[str(self._parts.work_dir), str(self._parts.local_dir.here())],
            )
        )
        reach(CrashPoint.RECOVERY_ATTEMPT_WON)
        self._books.lease.take(layout.attempt)
        steps = [
            PlannedStep(n.uid, n.name, n.parallelism)
            for s in self._parts.plan.stages
            for n in s.nodes
        ]
        program = self._parts.program
        self._dir.write_facts(
            JobFacts(program.name, program.created, program.program, program.args, steps)
        )

    def _prepared(
        self,
        plan: Plan,
        layout: Layout,
        snapshot: Snapshot | None,
        watch: Stopwatch,
        held: contextlib.ExitStack,
    ) -> Attempt:
        """Make an attempt that is ready to start; what it takes is let go with `held`."""
        parts, books = self._parts, self._books
        held.callback(layout.on_hosts.leave)
        held.callback(shutil.rmtree, layout.root, ignore_errors=True)
        books.kept.remove_leftovers(layout)
        restored_from = CheckpointId(0 if snapshot is None else snapshot.metadata.checkpoint)
        store = books.store(layout.attempt, layout.life, restored_from)
        reach(CrashPoint.RECOVERY_RESOLVED)
        groups = parts.group(plan, () if snapshot is None else snapshot.in_flight)
        submitter = parts.make_submitter(groups, layout)
        held.callback(_quietly, submitter.close)
        held.callback(_quietly, submitter.cancel)
        cleanup = HostCleanup(plan, layout, submitter, is_restored=snapshot is not None)
        watch.lap(Part.REDEPLOY)
        restored = RestoredJob()
        if snapshot is not None:
            with _telling_damage():
                restored = StateRestorer(plan, layout, parts.settings, submitter).restore(snapshot)
            reach(CrashPoint.RECOVERY_IN_FLIGHT_RESTORED)
        files = FileKeeper()
        positions = books.kept.hold(files)
        reach(CrashPoint.RECOVERY_STATE_LOADED)
        watch.lap(Part.LOAD_STATE)
        attempt = Attempt(
            AttemptParts(
                plan=plan,
                groups=groups,
                layout=layout,
                settings=parts.settings,
                clock=parts.clock,
                checkpoints=parts.checkpoints,
                store=store,
                submitter=submitter,
                files=files,
                restored=restored,
                restored_from=restored_from,
                is_committed=snapshot is not None and snapshot.is_committed,
                positions=positions,
                on_completed=self._claim.completed,
                held_by_sinks=books.kept.held_by_sinks,
                report=cleanup.seeing(self._report),
            )
        )
        held.callback(_quietly, attempt.close)
        held.callback(_quietly, lambda: cleanup.run(is_over=attempt.failure is None))
        attempt.reset_sources()
        watch.lap(Part.RESET_SOURCES)
        attempt.reset_sinks()
        watch.lap(Part.RESET_SINKS)
        return attempt

    def _claims(self, snapshot: Snapshot) -> bool:
        return not snapshot.is_own and self._parts.checkpoints.claim_mode is ClaimMode.CLAIM

    def _tell_recovery(
        self, attempt: AttemptId, snapshot: Snapshot | None, cause: str, watch: Stopwatch
    ) -> None:
        checkpoint = None if snapshot is None else snapshot.metadata.checkpoint
        recovery = watch.recovery(attempt, checkpoint, cause or "started from a snapshot")
        try:
            self._books.history.add_recovery(recovery)
        except OSError as error:
            logger.warning("the recovery cannot be written down: %s", error)
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


class _Claim:
    """A snapshot that is the job's to delete, once it has a checkpoint of its own."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None

    def take(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def completed(self, completed: Completed) -> None:
        claimed = self._snapshot
        if claimed is None or completed.is_savepoint:
            return
        self._snapshot = None
        try:
            discard_claimed(claimed.path, claimed.metadata)
        except (OSError, PenstockError) as error:
            logger.warning("claimed %s cannot be deleted: %s", claimed.path, error)


class _DamagedSnapshotError(Exception):
    """A snapshot cannot be begun with, whatever else could."""

    def __init__(self, damage: PenstockError) -> None:
        super().__init__(damage)
        self.damage = damage


@contextlib.contextmanager
def _telling_damage() -> Iterator[None]:
    """Tell a damaged snapshot from everything else that may go wrong in a start."""
    try:
        yield
    except (CorruptStateError, CorruptMetadataError) as damage:
        raise _DamagedSnapshotError(damage) from damage
    except FileNotFoundError as error:
        missing = CorruptStateError(str(error.filename or error), "it is missing")
        raise _DamagedSnapshotError(missing) from error


def _start(attempt: Attempt) -> None:
    try:
        attempt.start()
    except BaseException:
        attempt.kill()
        raise


def _quietly(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception:
        logger.warning("an attempt that has ended could not let go of everything", exc_info=True)
