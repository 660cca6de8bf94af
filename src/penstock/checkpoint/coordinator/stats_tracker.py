"""Writes statistics of checkpoints and recoveries into the job's history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.coordinator.load_tracker import (
    LoadMark,
    LoadTracker,
    busiest_region,
    load_between,
)
from penstock.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    History,
    LoadStats,
    OperatorStats,
    Recovery,
)
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.ids import AttemptId, CheckpointId

_LONG_S = 1.0


class CheckpointStatsTracker:
    """Records one attempt in the history: its recovery and its checkpoints."""

    def __init__(
        self,
        history: History,
        attempt: AttemptId,
        clock: Callable[[], float] = time.time,
        ended: Callable[[CheckpointStats], None] = lambda _: None,
        load: LoadTracker | None = None,
    ) -> None:
        """Record; `ended` receives each checkpoint that has completed or failed."""
        self._history = history
        self._attempt = attempt
        self._clock = clock
        self._ended = ended
        self._recorded: dict[CheckpointId, tuple[int, BarrierHandling]] = {}
        self._load = LoadTracker({}) if load is None else load
        self._recovery: Recovery | None = None
        """The recovery that the attempt began with, until it is known how it caught up."""
        self._last_end = self._load.mark()
        self._triggered: dict[CheckpointId, tuple[LoadMark, LoadMark]] = {}
        """The load at the end of the checkpoint before, and at the trigger."""

    def record_recovery(self, recovery: Recovery) -> None:
        """Record how the attempt recovered; completed later by how it caught up."""
        self._history.add_recovery(recovery)
        self._recovery = recovery
        self._load.start()

    def record_triggered(self, checkpoint: CheckpointId) -> None:
        """Remember what was processed before a checkpoint."""
        self._triggered[checkpoint] = self._last_end, self._load.mark()

    def record_long_running(self, pending: Iterable[PendingCheckpoint], now: float) -> list[float]:
        """Record the progress of checkpoints that have been pending for a second or longer.

        Called after every event; a checkpoint is written only if it has made progress. Returns, for
        each younger checkpoint, the seconds until it has been pending that long.
        """
        waits = []
        for checkpoint in pending:
            left = checkpoint.started + _LONG_S - now
            progress = len(checkpoint.acknowledged), checkpoint.barrier_handling
            if left > 0:
                waits.append(left)
            elif self._recorded.get(checkpoint.id) != progress:
                self._recorded[checkpoint.id] = progress
                self._write(checkpoint, CheckpointStatus.PENDING)
        return waits

    def record_completed(self, pending: PendingCheckpoint, completed: CompletedCheckpoint) -> None:
        """Record a completed checkpoint."""
        self._write(pending, CheckpointStatus.COMPLETED, completed)

    def record_failure(
        self, pending: PendingCheckpoint, reason: CheckpointFailureReason, message: str
    ) -> None:
        """Record an aborted checkpoint, in its event log and in the history."""
        failure = f"{reason.value}: {message}"
        pending.event_log.record(CheckpointEvent.ABORTED, None, failure)
        self._write(pending, CheckpointStatus.FAILED, failure=failure)

    def _write(
        self,
        pending: PendingCheckpoint,
        status: CheckpointStatus,
        completed: CompletedCheckpoint | None = None,
        failure: str | None = None,
    ) -> None:
        before = during = None
        if status is not CheckpointStatus.PENDING:
            self._recorded.pop(pending.id, None)
            before, during = self._take_load(pending.id)
        self._record_catch_up()
        operators = pending.operators()
        stats = [s for operator in operators for s in operator.stats]
        events = pending.event_log.records()
        # After its completion older checkpoints are deleted, which is not part of its duration.
        ends = [event.time for event in events if event.event is CheckpointEvent.COMPLETED]
        record = CheckpointStats(
            id=pending.id,
            kind=pending.request.kind.value,
            status=status,
            attempt=self._attempt,
            triggered=pending.triggered,
            duration_s=max(0.0, (ends[0] if ends else self._clock()) - pending.triggered),
            new_bytes=0 if completed is None else completed.new_bytes,
            full_bytes=0 if completed is None else completed.full_bytes,
            operators=[OperatorStats(o.uid, o.name, o.stats, o.channels) for o in operators],
            path=None if completed is None else completed.path,
            failure=failure,
            events=events,
            barriers=pending.barrier_handling.value,
            blocked_bytes=sum(s.blocked_bytes for s in stats),
            in_flight_bytes=sum(s.in_flight_bytes for s in stats),
            load_before=before,
            load_during=during,
        )
        if status is not CheckpointStatus.PENDING:
            self._ended(record)
        self._history.write(record)

    def _take_load(self, checkpoint: CheckpointId) -> tuple[LoadStats | None, LoadStats | None]:
        """Return what was processed before and during a checkpoint that ends now."""
        marks, now = self._triggered.pop(checkpoint, None), self._load.mark()
        self._last_end = now
        if marks is None:
            return None, None
        start, trigger = marks
        region = busiest_region(start, now)
        return load_between(start, trigger, region), load_between(trigger, now, region)

    def _record_catch_up(self) -> None:
        """Complete the recorded recovery, once the attempt has caught up."""
        recovery, catch_up = self._recovery, self._load.catch_up
        if recovery is None or catch_up is None:
            return
        self._recovery = None
        self._history.replace_recovery(
            replace(
                recovery,
                catch_up_began_s=catch_up.began_s,
                caught_up_s=catch_up.caught_up_s,
                catch_up_records=catch_up.records,
            )
        )
