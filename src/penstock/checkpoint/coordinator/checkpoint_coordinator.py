"""Runs the checkpoints of one attempt: feeds the state machine and carries out its actions.

One thread owns the state machine; everything reaches it as an event in a queue. Region loops read
`view`, which that thread replaces as a whole, and submit their snapshots. Each stage has a
checkpoint executor of one thread, which makes snapshots durable in the order of barriers while the
loop continues.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.coordinator import actions, events
from penstock.checkpoint.coordinator.actions import Action
from penstock.checkpoint.coordinator.commit_executor import CommitExecutor
from penstock.checkpoint.coordinator.events import Event
from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.coordinator.job_callbacks import JobCallbacks, StageFacts
from penstock.checkpoint.coordinator.pending_checkpoint import FrozenSnapshot, PendingCheckpoint
from penstock.checkpoint.coordinator.request_decider import CheckpointRequest, RequestKind
from penstock.checkpoint.coordinator.state_machine import CheckpointStateMachine
from penstock.checkpoint.coordinator.stats_tracker import CheckpointStatsTracker
from penstock.checkpoint.coordinator.view import LiveCheckpoint
from penstock.checkpoint.event_log import CheckpointEvent, CheckpointEventLog
from penstock.checkpoint.settings import CheckpointSettings
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.completed_checkpoint_store import (
    CompletedCheckpoint,
    CompletedCheckpointStore,
)
from penstock.checkpoint.storage.metadata import CommittableState
from penstock.crash_points import CrashPoint, reach
from penstock.errors import CheckpointFailedError
from penstock.ids import CheckpointId, StageId
from penstock.task.messages import CheckpointNotification, NotificationKind

logger = logging.getLogger("penstock.checkpoint")

_NOTIFICATIONS_KEPT = 100


class CheckpointCoordinator:
    """Triggers checkpoints, collects acknowledgements, completes checkpoints and commits sinks."""

    def __init__(
        self,
        stages: Sequence[StageFacts],
        settings: CheckpointSettings,
        store: CompletedCheckpointStore,
        registry: SharedStateRegistry,
        commits: CommitExecutor,
        stats: CheckpointStatsTracker,
        job: JobCallbacks,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to coordinate; intervals and timeouts follow `clock`, which is never set."""
        self._store = store
        self._registry = registry
        self._commits = commits
        self._stats = stats
        self._job = job
        self._clock = clock
        self._time_of_day = time_of_day
        self._counts_records = settings.records is not None
        self._machine = CheckpointStateMachine(stages, settings, clock())
        self.view = self._machine.view
        """What region loops see. Written by the coordinator's thread only, and replaced as a whole:
        a loop that reads it once has a consistent picture without a lock."""
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._executors = {
            s.id: ThreadPoolExecutor(1, thread_name_prefix=f"checkpoint-{s.id}") for s in stages
        }
        self._answers: dict[str, Future[CompletedCheckpoint]] = {}
        self._request_ids = count(1)
        self._requesting = threading.Lock()
        """Keeps a request from being queued when nothing will answer it any more."""
        self._stopped = False
        self._notifications: dict[StageId, deque[CheckpointNotification]] = {
            s.id: deque(maxlen=_NOTIFICATIONS_KEPT) for s in stages if s.listens
        }
        """As in Flink, notifications are best effort: a stage that takes none for long, because it
        waits for its first record or for its consumers, gets the newest."""
        self._notifications_lock = threading.Lock()
        """The coordinator's thread appends, the region loops take."""

    # -- called by the region loops -------------------------------------------------------------

    def live_checkpoint(self, checkpoint: CheckpointId) -> LiveCheckpoint:
        """Return a pending checkpoint; if it was just aborted, a placeholder with defaults."""
        live = self.view.checkpoints.get(checkpoint)
        if live is not None:
            return live
        log = CheckpointEventLog(checkpoint, self._time_of_day)
        return LiveCheckpoint(BarrierHandling.ALIGNED, self._time_of_day(), False, None, log)

    def record(
        self, checkpoint: CheckpointId, event: CheckpointEvent, stage: str, detail: str = ""
    ) -> None:
        """Add to the event log of a checkpoint."""
        self.live_checkpoint(checkpoint).event_log.record(event, stage, detail)

    def submit_snapshot(self, frozen: FrozenSnapshot) -> None:
        """Make the snapshot of a stage durable while the stage continues."""
        self._events.put(events.BarrierPassed(frozen.stage, frozen.checkpoint))
        self._executors[frozen.stage].submit(self._run_async_phase, frozen)

    def stage_ended(self, stage: StageId) -> None:
        """Take note that a stage has published the last of its input."""
        self._events.put(events.StageEnded(stage))

    def records_read(self, records: int) -> None:
        """Take note of records that a source has read."""
        if self._counts_records:
            self._events.put(events.RecordsRead(records))

    def listens(self, stage: StageId) -> bool:
        """Whether functions of a stage want to be notified of checkpoints."""
        return stage in self._notifications

    def take_notifications(self, stage: StageId) -> list[CheckpointNotification]:
        """Return, once, the new notifications for the functions of a stage."""
        if stage not in self._notifications:
            return []
        with self._notifications_lock:
            taken = list(self._notifications[stage])
            self._notifications[stage].clear()
        return taken

    def has_notifications(self, stage: StageId) -> bool:
        """Whether there are notifications for the functions of a stage."""
        return bool(self._notifications.get(stage))

    # -- called by the job ----------------------------------------------------------------------

    def start(self) -> None:
        """Start to trigger checkpoints."""
        self._thread.start()

    def request(
        self, kind: RequestKind, path: str | None = None, *, drain: bool = False
    ) -> Future[CompletedCheckpoint]:
        """Request a checkpoint or savepoint; any thread may call.

        With `drain` all sources end where they are, and the last checkpoint of the job is the
        savepoint.
        """
        request = CheckpointRequest(kind, f"r{next(self._request_ids)}", path)
        event = events.CheckpointRequested(request, drain)
        with self._requesting:
            if self._stopped:
                event.answer.set_exception(_job_ended())
            else:
                self._events.put(event)
        return event.answer

    def clock_moved(self) -> None:
        """Look at the clock now: it was moved by hand."""
        self._events.put(events.ClockMoved())

    def pending_committables(self) -> dict[str, list[CommittableState]]:
        """Return what sinks have pre-committed and not committed; after `stop`."""
        return self._machine.committables

    def stop(self) -> None:
        """Wait for running snapshots and commits, then abort the checkpoints still pending."""
        with self._requesting:
            self._stopped = True
            self._events.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        for executor in self._executors.values():
            executor.shutdown(wait=True, cancel_futures=True)
        self._commits.close()
        self._handle_remaining()
        for pending in self._machine.pending:
            self._store.discard_pending(pending.id)
            reason = CheckpointFailureReason.JOB_STOPPING
            self._stats.record_failure(pending, reason, "the attempt ended")
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_job_ended())

    def _handle_remaining(self) -> None:
        """Handle the events that came too late for the coordinator's thread."""
        while not self._events.empty():
            match self._events.get():
                case events.CommittablesPrepared() | events.CommitsCompleted() as event:
                    self._machine.handle(event, self._clock())
                case events.SnapshotAcknowledged(frozen, _) | events.SnapshotDeclined(frozen, _):
                    self._store.discard_pending(frozen.checkpoint)
                case events.CheckpointRequested(request, _, answer):
                    self._answers[request.id] = answer

    # -- a stage's checkpoint executor ----------------------------------------------------------

    def _run_async_phase(self, frozen: FrozenSnapshot) -> None:
        try:
            snapshot = frozen.run_async_phase(
                lambda uid, prepared: self._events.put(events.CommittablesPrepared(uid, prepared))
            )
            reach(CrashPoint.STAGE_SNAPSHOT_DURABLE)
        except BaseException as error:
            at = frozen.checkpoint, frozen.stage
            logger.debug("checkpoint %d failed in stage %d", *at, exc_info=True)
            self._events.put(events.SnapshotDeclined(frozen, error))
        else:
            self._events.put(events.SnapshotAcknowledged(frozen, snapshot))

    # -- the coordinator's thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                while todo := self._machine.advance(now := self._clock()):
                    self._carry_out(todo)
                try:
                    # One reading of the clock for both: a checkpoint that becomes due in between
                    # would be neither triggered nor waited for.
                    event = self._events.get(timeout=self._seconds_until_due(now))
                except queue.Empty:
                    continue
                if event is None:
                    return
                if isinstance(event, events.CheckpointRequested):
                    self._answers[event.request.id] = event.answer
                self._carry_out(self._machine.handle(event, self._clock()))
        except BaseException as error:
            self._job.fail(error)

    def _seconds_until_due(self, now: float) -> float | None:
        waits = self._stats.record_long_running(self._machine.pending, now)
        due = self._machine.seconds_until_due(now)
        waits += [] if due is None else [due]
        return max(min(waits), 0.001) if waits else None

    def _carry_out(self, todo: Iterable[Action]) -> None:
        # First of all: loops that an action wakes up must see what they are woken up for.
        self.view = self._machine.view
        for action in todo:
            match action:
                case actions.TriggerCheckpoint(request):
                    log = CheckpointEventLog(self._store.next_id(), self._time_of_day)
                    self._stats.record_triggered(log.checkpoint)
                    self._carry_out(self._machine.trigger(request, log, self._clock()))
                case actions.WriteMetadata():
                    self._write_metadata(action)
                case actions.CompleteCheckpoint():
                    self._complete(action)
                case actions.AbortCheckpoint():
                    self._abort(action)
                case actions.DiscardSnapshot(frozen, is_late):
                    frozen.files.release()
                    if is_late:
                        self._store.discard_pending(frozen.checkpoint)
                case actions.Answer(request_id, result):
                    self._answer(request_id, result)
                case actions.EndJob(last):
                    self._job.end(last)
                case actions.FailJob(error):
                    self._job.fail(error)
                case actions.ReachCrashPoint(point):
                    reach(point)
                case actions.WakeLoops():
                    self._job.wake()

    def _write_metadata(self, action: actions.WriteMetadata) -> None:
        pending = action.pending
        try:
            completed = self._store.write(
                pending.id, action.operators, pending.triggered, pending.request.path
            )
        except OSError as error:
            self._carry_out(self._machine.metadata_failed(pending, error, self._clock()))
            return
        # A crash here leaves a directory that is no checkpoint: the journal does not know it.
        reach(CrashPoint.COORDINATOR_METADATA_WRITTEN)
        self._carry_out(self._machine.complete(action, completed, self._clock()))

    def _complete(self, action: actions.CompleteCheckpoint) -> None:
        pending, completed = action.pending, action.completed
        self._store.complete(completed)
        # A crash from here on leaves a checkpoint; the next attempt commits what it holds.
        reach(CrashPoint.COORDINATOR_COMPLETED)
        self._job.completed(completed, action.operators)
        pending.event_log.record(CheckpointEvent.COMPLETED, None, completed.path)
        self._carry_out(action.subsumed)
        if action.committables is not None:
            self._job.notify_checkpoint_complete(action.operators)
            self._notify(NotificationKind.COMPLETE, pending.id)
            self._commits.submit(
                pending.id,
                action.committables,
                lambda: self._events.put(events.CommitsCompleted(completed, pending.ends_the_job)),
                lambda error: self._events.put(events.CommitsFailed(completed, error)),
            )
        if pending.is_savepoint:
            _release(pending)
        else:
            self._retain(pending)
        if deleted := self._store.discard_deleted():
            self._forget(deleted)
        self._stats.record_completed(pending, completed)
        logger.info("%s", completed)

    def _retain(self, pending: PendingCheckpoint) -> None:
        """Keep the files of a completed checkpoint, and discard the oldest ones."""
        leases = [snapshot.files for snapshot in pending.acknowledged.values()]
        self._registry.transfer(pending.id, leases)
        self._forget(self._store.discard_subsumed())
        reach(CrashPoint.COORDINATOR_SUBSUMED)

    def _forget(self, discarded: list[CheckpointId]) -> None:
        self._registry.unregister_checkpoints(discarded)
        self._job.notify_checkpoints_discarded(discarded)

    def _abort(self, action: actions.AbortCheckpoint) -> None:
        pending = action.pending
        _release(pending)
        self._store.discard_pending(pending.id)
        self._stats.record_failure(pending, action.reason, action.message)
        self._notify(NotificationKind.ABORTED, pending.id)
        if action.reason.counts and not pending.is_savepoint:
            logger.warning("checkpoint %d failed: %s", pending.id, action.message)

    def _answer(self, request: str, result: CompletedCheckpoint | CheckpointFailedError) -> None:
        answer = self._answers.pop(request, None)
        if answer is None:
            return
        if isinstance(result, CheckpointFailedError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def _notify(self, kind: NotificationKind, checkpoint: CheckpointId) -> None:
        with self._notifications_lock:
            for notifications in self._notifications.values():
                notifications.append(CheckpointNotification(kind, checkpoint))


def _release(pending: PendingCheckpoint) -> None:
    for snapshot in pending.acknowledged.values():
        snapshot.files.release()


def _job_ended() -> CheckpointFailedError:
    return CheckpointFailedError(0, "the job ended or failed first; retry when it is running")
