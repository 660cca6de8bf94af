"""The five times of a recovery."""

from __future__ import annotations

import time
from enum import Enum, auto

from penstock.checkpoint.history import Recovery
from penstock.ids import AttemptId


class Part(Enum):
    """What the start of an attempt is made of, behind the decision to start it."""

    REDEPLOY = auto()
    LOAD_STATE = auto()
    RESET_SOURCES = auto()
    RESET_SINKS = auto()


class Stopwatch:
    """Measures the start of an attempt; runs from the moment it is made."""

    def __init__(self, detect_s: float) -> None:
        self._detect_s = detect_s
        self._seconds = dict.fromkeys(Part, 0.0)
        self._last = time.perf_counter()

    def lap(self, part: Part) -> None:
        """Count the time since the last lap to a part; a part may have several laps."""
        now = time.perf_counter()
        self._seconds[part] += now - self._last
        self._last = now

    def recovery(self, attempt: AttemptId, checkpoint: int | None, cause: str) -> Recovery:
        """Return what was measured, as the history keeps it."""
        return Recovery(
            attempt=attempt,
            checkpoint=checkpoint,
            cause=cause,
            detect_s=self._detect_s,
            redeploy_s=self._seconds[Part.REDEPLOY],
            load_state_s=self._seconds[Part.LOAD_STATE],
            reset_sources_s=self._seconds[Part.RESET_SOURCES],
            reset_sinks_s=self._seconds[Part.RESET_SINKS],
            time=time.time(),
        )
