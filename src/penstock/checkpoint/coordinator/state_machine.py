"""The decisions of the checkpoint coordinator, as a state machine: event and time in, actions out.

It reads no clock, writes no file and takes no lock. `CheckpointCoordinator` feeds it from a single
thread and carries out its actions in the order in which they are returned; that order is the
protocol. What the actions lead to comes back as an event.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import structs

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.barriers.in_flight_data import ChannelStateAbortedError
from penstock.checkpoint.coordinator import actions, events
from penstock.checkpoint.coordinator.actions import Action
from penstock.checkpoint.coordinator.events import Event
from penstock.checkpoint.coordinator.failure_manager import (
    CheckpointFailureManager,
    CheckpointFailureReason,
)
from penstock.checkpoint.coordinator.job_callbacks import StageFacts
from penstock.checkpoint.coordinator.pending_checkpoint import (
    FrozenSnapshot,
    PendingCheckpoint,
    PendingCommittables,
    StageSnapshot,
)
from penstock.checkpoint.coordinator.request_decider import (
    CheckpointRequest,
    RequestKind,
    Trigger,
    TriggerFacts,
    Wait,
    decide,
)
from penstock.checkpoint.coordinator.view import CoordinatorView, LiveCheckpoint
from penstock.checkpoint.event_log import CheckpointEvent, CheckpointEventLog
from penstock.checkpoint.settings import CheckpointSettings, Guarantee
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot, SinkState
from penstock.crash_points import CrashPoint
from penstock.errors import CheckpointFailedError, TooManyFailedCheckpointsError
from penstock.ids import CheckpointId, StageId

_FINAL_RETRY_DELAY_S = 1.0
_MOST_QUEUED = 1000
"""Requests that wait for others, as in Flink."""


class CheckpointStateMachine:
    """The checkpoints of one attempt of a job; called by one thread."""

    def __init__(
        self, stages: Sequence[StageFacts], settings: CheckpointSettings, now: float
    ) -> None:
        self._stages = {s.id: s.name for s in stages}
        self._settings = settings
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._queued: list[CheckpointRequest] = []
        self._committables = PendingCommittables()
        self._failures = CheckpointFailureManager()
        self._ended: set[StageId] = set()
        self._records = 0
        self._last_trigger = now
        self._last_end = -math.inf
        self._final_not_before = 0.0
        self._stop_request = ""
        """The request whose checkpoint ends the job, once that is complete."""
        self._is_ending = False
        self._sources_paused = False
        self._last_checkpoint: CheckpointId | None = None
        self._is_draining = False

    @property
    def pending(self) -> list[PendingCheckpoint]:
        """The checkpoints that are neither complete nor aborted."""
        return list(self._pending.values())

    @property
    def committables(self) -> dict[str, list[CommittableState]]:
        """What sinks have pre-committed and not committed, by uid."""
        return self._committables.all()

    @property
    def view(self) -> CoordinatorView:
        """What region loops see of the current state."""
        live = {n: self._pending[n] for n in sorted(self._pending)}
        return CoordinatorView(
            {
                n: LiveCheckpoint(
                    p.barrier_handling,
                    p.triggered,
                    p.flush,
                    p.request.path,
                    p.event_log,
                )
                for n, p in live.items()
            },
            {n: p.barrier_handling for n, p in live.items()},
            self._sources_paused,
            self._is_draining,
            self._last_checkpoint,
        )

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take in an event; return what is to be done."""
        match event:
            case events.RecordsRead(records):
                self._records += records
            case events.BarrierPassed(stage, checkpoint):
                if (pending := self._pending.get(checkpoint)) is not None:
                    pending.barrier_passed.add(stage)
            case events.CommittablesPrepared(uid, committables):
                # Also of a checkpoint that fails: its records are before the next barrier.
                self._committables.add(uid, committables)
            case events.SnapshotAcknowledged(frozen, snapshot):
                return self._acknowledge(frozen, snapshot)
            case events.SnapshotDeclined(frozen, error):
                return self._decline(frozen, error, now)
            case events.StageEnded(stage):
                self._ended.add(stage)
                return self._end_of_input()
            case events.CheckpointRequested(request, _) if len(self._queued) >= _MOST_QUEUED:
                message = f"{_MOST_QUEUED} requests are waiting already; retry later"
                return [actions.Answer(request.id, CheckpointFailedError(0, message))]
            case events.CheckpointRequested(request, drain):
                self._queued.append(request)
                self._is_draining = self._is_draining or drain
                return [actions.WakeLoops()] if drain else []
            case events.CommitsCompleted(completed, ends_the_job):
                self._committables.committed(completed.checkpoint)
                if ends_the_job:
                    answer = actions.Answer(self._stop_request, completed)
                    return [answer, actions.EndJob(completed)]
            case events.CommitsFailed(completed, error):
                message = f"its output could not be committed: {error}"
                failure = CheckpointFailedError(completed.checkpoint, message)
                return [actions.Answer(self._stop_request, failure), actions.FailJob(error)]
        return []

    def advance(self, now: float) -> list[Action]:
        """Return what is due by now; called again until nothing is."""
        for pending in self.pending:
            if pending.expires <= now:
                missing = ", ".join(sorted(self._stages[s] for s in pending.not_acknowledged))
                message = f"it took longer than {self._settings.timeout_s:g} s; missing: {missing}"
                return self._abort(pending, CheckpointFailureReason.EXPIRED, message, now)
            if (at := self._alignment_timeout(pending)) is not None and at <= now:
                pending.barrier_handling = BarrierHandling.UNALIGNED
                message = f"not aligned after {self._settings.aligned_timeout_s:g} s"
                pending.event_log.record(CheckpointEvent.SWITCHED, None, message)
                return [actions.WakeLoops()]
        if isinstance(decision := self._decide(now), Trigger):
            return [actions.TriggerCheckpoint(decision.request)]
        return []

    def seconds_until_due(self, now: float) -> float | None:
        """Return after how many seconds `advance` has something to do, None if it never has."""
        due = [pending.expires for pending in self.pending]
        due += [at for p in self.pending if (at := self._alignment_timeout(p)) is not None]
        if now < self._final_not_before:
            due.append(self._final_not_before)
        decision = self._decide(now)
        if isinstance(decision, Trigger):
            due.append(now)
        elif decision.seconds is not None:
            due.append(now + decision.seconds)
        return min(due) - now if due else None

    # -- trigger --------------------------------------------------------------------------------

    def _decide(self, now: float) -> Trigger | Wait:
        periodic = self._settings.enabled and not self._is_ending and not self._is_draining
        facts = TriggerFacts(
            interval_s=self._settings.interval_s if periodic else None,
            records=self._settings.records if periodic else None,
            min_pause_s=self._settings.min_pause_s,
            max_concurrent=self._settings.max_concurrent,
            queued=tuple(r for r in self._queued if self._may_trigger(r, now)),
            pending=tuple(p.request.kind for p in self.pending),
            last_trigger=self._last_trigger,
            last_end=self._last_end,
            records_since_trigger=self._records,
        )
        return decide(facts, now)

    def _may_trigger(self, request: CheckpointRequest, now: float) -> bool:
        # The last checkpoint of a job comes after the end of all its data.
        if request.kind is not RequestKind.FINAL:
            return True
        return self._has_ended() and now >= self._final_not_before

    def trigger(
        self, request: CheckpointRequest, event_log: CheckpointEventLog, now: float
    ) -> list[Action]:
        """Start a checkpoint under the id of its event log."""
        checkpoint = event_log.checkpoint
        if request in self._queued:
            self._queued.remove(request)
        event_log.record(CheckpointEvent.TRIGGERED, None, request.kind.value)
        pending = PendingCheckpoint(
            id=checkpoint,
            request=request,
            triggered=event_log.records()[0].time,
            started=now,
            expires=now + self._settings.timeout_s,
            event_log=event_log,
            not_acknowledged=set(self._stages),
            barrier_handling=self._barrier_handling(request),
        )
        self._pending[checkpoint] = pending
        self._last_trigger = now
        self._records = 0
        if pending.ends_the_job:
            self._is_ending = self._sources_paused = True
            self._last_checkpoint = checkpoint
        return [actions.ReachCrashPoint(CrashPoint.COORDINATOR_TRIGGERED), actions.WakeLoops()]

    def _barrier_handling(self, request: CheckpointRequest) -> BarrierHandling:
        """Return how the barriers of a new checkpoint are handled; savepoints are aligned."""
        if request.path is not None or request.kind is RequestKind.STOP:
            return BarrierHandling.ALIGNED
        if self._settings.mode is Guarantee.AT_LEAST_ONCE:
            return BarrierHandling.AT_LEAST_ONCE
        if self._settings.unaligned and self._settings.aligned_timeout_s == 0:
            return BarrierHandling.UNALIGNED
        return BarrierHandling.ALIGNED

    def _alignment_timeout(self, pending: PendingCheckpoint) -> float | None:
        """Return when a checkpoint becomes unaligned if it is still being aligned then."""
        is_aligned = pending.barrier_handling is BarrierHandling.ALIGNED
        if not self._settings.unaligned or not is_aligned or pending.flush:
            return None
        if pending.barrier_passed.issuperset(self._stages):
            return None
        return pending.started + self._settings.aligned_timeout_s

    def _end_of_input(self) -> list[Action]:
        """Request the last checkpoint once all data is processed, unless another ends the job."""
        under_way = [*self._queued, *(p.request for p in self.pending)]
        ends_already = self._is_ending or any(r.kind.ends_the_job for r in under_way)
        if not self._has_ended() or ends_already:
            return []
        if not self._settings.enabled:
            return [actions.EndJob(None)]
        self._queued.append(CheckpointRequest(RequestKind.FINAL, "final"))
        return []

    def _has_ended(self) -> bool:
        return len(self._ended) == len(self._stages)

    # -- acknowledgements -----------------------------------------------------------------------

    def _acknowledge(self, frozen: FrozenSnapshot, snapshot: StageSnapshot) -> list[Action]:
        pending = self._pending.get(frozen.checkpoint)
        if pending is None:
            return [actions.DiscardSnapshot(frozen, is_late=True)]
        if not pending.acknowledge(frozen.stage, snapshot):
            return [actions.DiscardSnapshot(frozen, is_late=False)]
        pending.event_log.record(CheckpointEvent.ACKNOWLEDGED, self._stages[frozen.stage])
        todo: list[Action] = [actions.ReachCrashPoint(CrashPoint.COORDINATOR_ACKNOWLEDGED)]
        if pending.is_complete:
            operators = [self._with_committables(o, pending.id) for o in pending.operators()]
            todo.append(actions.WriteMetadata(pending, operators))
        return todo

    def _with_committables(
        self, operator: OperatorSnapshot, checkpoint: CheckpointId
    ) -> OperatorSnapshot:
        if operator.sink is None:
            return operator
        sink = SinkState(self._committables.of(operator.uid, checkpoint), operator.sink.state)
        return structs.replace(operator, sink=sink)

    def _decline(self, frozen: FrozenSnapshot, error: BaseException, now: float) -> list[Action]:
        pending = self._pending.get(frozen.checkpoint)
        todo: list[Action] = [actions.DiscardSnapshot(frozen, is_late=pending is None)]
        if pending is None:
            return todo
        if isinstance(error, ChannelStateAbortedError):
            reason, message = CheckpointFailureReason.JOB_STOPPING, "the attempt ended"
        else:
            reason = CheckpointFailureReason.ASYNC_FAILED
            message = f"{self._stages[frozen.stage]}: {error}"
        return todo + self._abort(pending, reason, message, now)

    # -- the end of a checkpoint ----------------------------------------------------------------

    def complete(
        self, written: actions.WriteMetadata, completed: CompletedCheckpoint, now: float
    ) -> list[Action]:
        """Complete a checkpoint whose metadata was written and read back."""
        # It may be complete from here on, whatever fails next: it must never be aborted.
        pending = self._pending.pop(written.pending.id)
        self._last_end = now
        self._failures.completed()
        subsumed: list[Action] = []
        committables = None
        if not pending.is_savepoint or pending.ends_the_job:
            for older in [p for p in self.pending if p.id < pending.id and not p.is_savepoint]:
                message = f"checkpoint {pending.id} completed before it"
                subsumed += self._abort(older, CheckpointFailureReason.SUBSUMED, message, now)
            committables = self._committables.upto(pending.id)
        facts = pending, written.operators, completed
        todo: list[Action] = [actions.CompleteCheckpoint(*facts, subsumed, committables)]
        if pending.ends_the_job:
            # Answered after the commits: only a job whose output is committed has stopped.
            self._stop_request = pending.request.id
        else:
            todo.append(actions.Answer(pending.request.id, completed))
        return [*todo, actions.WakeLoops()]

    def metadata_failed(
        self, pending: PendingCheckpoint, error: OSError, now: float
    ) -> list[Action]:
        """Abort a checkpoint whose metadata could not be written."""
        reason = CheckpointFailureReason.FINALIZE_FAILED
        return self._abort(pending, reason, f"its metadata: {error}", now)

    def _abort(
        self, pending: PendingCheckpoint, reason: CheckpointFailureReason, message: str, now: float
    ) -> list[Action]:
        del self._pending[pending.id]
        self._last_end = now
        failure = CheckpointFailedError(pending.id, message)
        todo: list[Action] = [
            actions.AbortCheckpoint(pending, reason, message),
            actions.Answer(pending.request.id, failure),
        ]
        if pending.ends_the_job:
            self._sources_paused = self._is_ending = False
            self._last_checkpoint = None
            self._final_not_before = now + _FINAL_RETRY_DELAY_S
            # Drained sources have ended where they were: only a restore undoes that.
            todo += [actions.FailJob(failure)] if self._is_draining else self._end_of_input()
        if not pending.is_savepoint and reason.counts:
            self._failures.failed(reason)
            tolerable = self._settings.tolerable_failures
            if self._failures.exceeds(tolerable):
                self._is_ending = True
                todo.append(
                    actions.FailJob(TooManyFailedCheckpointsError(tolerable, pending.id, message))
                )
        return [*todo, actions.WakeLoops()]
