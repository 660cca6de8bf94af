"""A clock that only moves when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["ManualClock"]


class ManualClock:
    """Tells the time in seconds, like `time.time`; any thread may ask it or move it.

    Whoever waits for a time to come registers with `when_moved`.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass, then tell everybody who waits for it."""
        if seconds < 0:
            message = f"a clock that is advanced goes forward; got {seconds!r} s"
            raise ValueError(message)
        with self._lock:
            self._now += seconds
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def set_back(self, seconds: float) -> None:
        """Let the clock jump back, as a wall clock may that was wrong; nobody is told."""
        with self._lock:
            self._now -= seconds

    def when_moved(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every advance."""
        with self._lock:
            self._listeners.append(listener)
