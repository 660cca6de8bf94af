"""Remembers what became of the deletions of savepoints."""

from __future__ import annotations

import threading
import time

_KEPT_S = 3600.0
_KEPT = 1000


class Disposals:
    """What became of disposals, by trigger id; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going_on: set[str] = set()
        self._results: dict[str, tuple[float, str | None]] = {}

    def begin(self, trigger: str) -> bool:
        """Begin a disposal; False if there is or was one with this trigger."""
        with self._lock:
            if trigger in self._going_on or trigger in self._results:
                return False
            self._going_on.add(trigger)
            return True

    def end(self, trigger: str, failure: str | None) -> None:
        """Record how a disposal has ended, None if the savepoint is deleted; forget old ones."""
        now = time.monotonic()
        with self._lock:
            self._going_on.discard(trigger)
            kept = [(k, v) for k, v in self._results.items() if now - v[0] < _KEPT_S]
            self._results = {**dict(kept[1 - _KEPT :]), trigger: (now, failure)}

    def is_going_on(self, trigger: str) -> bool:
        """Whether a disposal has begun and not ended."""
        with self._lock:
            return trigger in self._going_on

    def result(self, trigger: str) -> tuple[str | None] | None:
        """Return why a disposal has failed, in a tuple; None if none has ended."""
        with self._lock:
            found = self._results.get(trigger)
            return None if found is None else (found[1],)
