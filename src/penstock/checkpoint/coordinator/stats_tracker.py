"""Writes statistics of checkpoints into the job's history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, History, OperatorStats
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.ids import AttemptId, CheckpointId

_LONG_S = 1.0


class CheckpointStatsTracker:
    """Records the checkpoints of one attempt in the history."""

    def __init__(
        self,
        history: History,
        attempt: AttemptId,
        clock: Callable[[], float] = time.time,
        ended: Callable[[CheckpointStats], None] = lambda _: None,
    ) -> None:
        """Record; `ended` receives each checkpoint that has completed or failed."""
        self._history = history
        self._attempt = attempt
        self._clock = clock
        self._ended = ended
        self._recorded: dict[CheckpointId, tuple[int, BarrierHandling]] = {}

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
        if status is not CheckpointStatus.PENDING:
            self._recorded.pop(pending.id, None)
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
        )
        if status is not CheckpointStatus.PENDING:
            self._ended(record)
        self._history.write(record)
