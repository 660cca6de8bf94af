"""Measures the phases of starting an attempt."""

from __future__ import annotations

import time
from enum import Enum

from penstock.checkpoint.history import Recovery
from penstock.checkpoint.storage.metadata import CheckpointMetadata, full_bytes
from penstock.ids import AttemptId


class RecoveryPhase(Enum):
    """A phase of starting an attempt."""

    REDEPLOY = "redeploy"
    LOAD_STATE = "load state"
    RESET_SOURCES = "reset sources"
    RESET_SINKS = "reset sinks"


class RecoveryTimer:
    """Measures the start of one attempt, from the moment it is created."""

    def __init__(self, detect_s: float) -> None:
        self._detect_s = detect_s
        self._seconds = dict.fromkeys(RecoveryPhase, 0.0)
        self._last = time.perf_counter()

    def lap(self, phase: RecoveryPhase) -> None:
        """Add the time since the last lap to a phase; a phase may have several laps."""
        now = time.perf_counter()
        self._seconds[phase] += now - self._last
        self._last = now

    def recovery(
        self, attempt: AttemptId, restored: CheckpointMetadata | None, cause: str
    ) -> Recovery:
        """Return the measured times as the history stores them."""
        now = time.time()
        failed = now - self._detect_s - sum(self._seconds.values())
        return Recovery(
            attempt=attempt,
            checkpoint=None if restored is None else restored.checkpoint,
            cause=cause,
            detect_s=self._detect_s,
            time=now,
            loaded_bytes=0 if restored is None else full_bytes(restored),
            snapshot_age_s=None if restored is None else max(0.0, failed - restored.triggered),
            redeploy_s=self._seconds[RecoveryPhase.REDEPLOY],
            load_state_s=self._seconds[RecoveryPhase.LOAD_STATE],
            reset_sources_s=self._seconds[RecoveryPhase.RESET_SOURCES],
            reset_sinks_s=self._seconds[RecoveryPhase.RESET_SINKS],
        )
