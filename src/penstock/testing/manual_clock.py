"""A clock that a test moves by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ManualClock:
    """Returns the time in seconds, like `time.time`; any thread may read or move it.

    Code that waits for a time registers a listener with `when_moved`.
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
        """Move the clock forward, then call all listeners."""
        if seconds < 0:
            message = f"advance() moves the clock forward; got {seconds!r} s"
            raise ValueError(message)
        with self._lock:
            self._now += seconds
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def set_back(self, seconds: float) -> None:
        """Move the clock back, like a wall clock that is corrected; listeners are not called."""
        with self._lock:
            self._now -= seconds

    def when_moved(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every advance."""
        with self._lock:
            self._listeners.append(listener)
