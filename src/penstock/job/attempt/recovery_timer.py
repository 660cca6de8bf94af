"""Measures the phases of starting an attempt."""

from __future__ import annotations

import time
from enum import Enum

from penstock.checkpoint.history import Recovery
from penstock.ids import AttemptId


class RecoveryPhase(Enum):
    """A phase of starting an attempt; the value is its field in the history."""

    REDEPLOY = "redeploy_s"
    LOAD_STATE = "load_state_s"
    RESET_SOURCES = "reset_sources_s"
    RESET_SINKS = "reset_sinks_s"


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

    def recovery(self, attempt: AttemptId, checkpoint: int | None, cause: str) -> Recovery:
        """Return the measured times as the history stores them."""
        return Recovery(
            attempt=attempt,
            checkpoint=checkpoint,
            cause=cause,
            detect_s=self._detect_s,
            time=time.time(),
            **{phase.value: seconds for phase, seconds in self._seconds.items()},
        )
