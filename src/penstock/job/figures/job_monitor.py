"""Collects the metrics of a job over all its attempts, under Flink's names."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus
from penstock.graph.plan import Plan
from penstock.ids import StageId
from penstock.job.figures.stage_monitor import StageMonitor

_MS = 1000.0


class JobMonitor:
    """The metrics of one job since its driver started; any thread may call."""

    def __init__(
        self,
        plan: Plan,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._clock = clock
        self.started = clock()
        self.stages = {s.id: StageMonitor(s, monotonic, clock) for s in plan.stages}
        self._stage_of = {str(n.uid): s.id for s in plan.stages for n in s.nodes}
        self._lock = threading.Lock()
        """Guards all below: the job's thread and the coordinator's write."""
        self._checkpoints: Counter[CheckpointStatus] = Counter()
        self._last: CheckpointStats | None = None
        self._restored_at: float | None = None
        self._restarts = 0
        self._has_started = False
        self._running_since: float | None = None
        self._failed_at: float | None = None
        self._restart_s = 0.0

    def stage(self, stage: StageId) -> StageMonitor:
        """Return the monitor of a stage."""
        return self.stages[stage]

    def checkpoint_ended(self, record: CheckpointStats) -> None:
        """Count a checkpoint or savepoint that has completed or failed."""
        with self._lock:
            self._checkpoints[record.status] += 1
            if record.status is not CheckpointStatus.COMPLETED:
                return
            self._last = record
        for operator in record.operators:
            stage = self._stage_of.get(operator.uid)
            if stage is not None and operator.stats:
                self.stages[stage].checkpointed(operator.stats)

    def restored(self) -> None:
        """Record that an attempt starts from a snapshot."""
        with self._lock:
            self._restored_at = self._clock()

    def attempt_started(self) -> None:
        """Record that an attempt runs."""
        with self._lock:
            if not self._has_started:
                self._has_started = True
                for stage in self.stages.values():
                    stage.started()
            self._running_since = now = self._monotonic()
            if self._failed_at is not None:
                self._restarts += 1
                self._restart_s, self._failed_at = now - self._failed_at, None

    def attempt_failed(self) -> None:
        """Record that an attempt has failed, and that the job may be restarted."""
        with self._lock:
            self._failed_at, self._running_since = self._monotonic(), None
        self.attempt_closed()

    def attempt_closed(self) -> None:
        """Record that nothing of an attempt runs any more: until now its loops may have waited."""
        for stage in self.stages.values():
            stage.stopped()

    def metrics(self, pending_checkpoints: int) -> dict[str, float]:
        """Return the metrics of the job; `pending_checkpoints` are those in progress."""
        with self._lock:
            now, failed_at, since = self._monotonic(), self._failed_at, self._running_since
            completed = self._checkpoints[CheckpointStatus.COMPLETED]
            failed = self._checkpoints[CheckpointStatus.FAILED]
            running_ms = 0.0 if since is None else (now - since) * _MS
            restart_s = self._restart_s if failed_at is None else now - failed_at
            found = {
                "numberOfCompletedCheckpoints": completed,
                "numberOfFailedCheckpoints": failed,
                "numberOfInProgressCheckpoints": pending_checkpoints,
                "totalNumberOfCheckpoints": completed + failed + pending_checkpoints,
                "numRestarts": self._restarts,
                "fullRestarts": self._restarts,
                "runningTime": running_ms,
                "uptime": running_ms,
                "downtime": 0.0 if failed_at is None else (now - failed_at) * _MS,
                "restartingTime": restart_s * _MS,
            }
            if self._restored_at is not None:
                found["lastCheckpointRestoreTimestamp"] = self._restored_at * _MS
            return found | ({} if self._last is None else _of_checkpoint(self._last))


def _of_checkpoint(last: CheckpointStats) -> dict[str, float]:
    return {
        "lastCompletedCheckpointId": last.id,
        "lastCheckpointDuration": last.duration_s * _MS,
        "lastCheckpointSize": last.new_bytes,
        "lastCheckpointFullSize": last.full_bytes,
        "lastCheckpointPersistedData": last.in_flight_bytes,
    }
