"""Remembers what became of the deletions of savepoints."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

_KEPT_S = 3600.0
_KEPT = 1000


@dataclass(slots=True)
class Disposals:
    """What became of disposals, by trigger id: None if one was done, else why not."""

    results: dict[str, tuple[float, str | None]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, trigger: str, failure: str | None) -> None:
        """Add a result, and forget old ones."""
        now = time.monotonic()
        with self.lock:
            kept = [(k, v) for k, v in self.results.items() if now - v[0] < _KEPT_S]
            self.results = dict(kept[-_KEPT:])
            self.results[trigger] = now, failure
