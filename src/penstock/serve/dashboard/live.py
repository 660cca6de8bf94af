"""The live figures of running jobs: asks drivers to report while the dashboard shows their jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from penstock.common.live_figures import LiveFigures
from penstock.recovery.control import Control, Watch
from penstock.recovery.lease import Alive
from penstock.serve.jobs.cached_job import JobView

_WATCH_S = 45.0
_AGAIN_S = 15.0
"""A driver that was asked goes on reporting between two requests."""


class LiveWatcher:
    """Asks drivers for figures, each at most once in some seconds; any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[str | None, float]] = {}
        """By job: of which attempt, and when; only of jobs that run."""

    def figures(self, view: JobView) -> LiveFigures | None:
        """Return the newest figures of a job, None if there are none; the next ones are newer."""
        if isinstance(view.driver, Alive) and self._is_due(view):
            # Without an answer nothing is lost: what is shown is marked as stale.
            with suppress(OSError):
                Control(view.directory).submit(Watch(_WATCH_S))
        return view.directory.read_live()

    def _is_due(self, view: JobView) -> bool:
        key, now = str(view.directory.path), self._clock()
        with self._lock:
            attempt, at = self._asked.get(key, (None, float("-inf")))
            if attempt == view.overview.attempt and now - at < _AGAIN_S:
                return False
            self._asked = {k: v for k, v in self._asked.items() if now - v[1] < _WATCH_S}
            self._asked[key] = view.overview.attempt, now
            return True


def shown_figures(figures: LiveFigures) -> dict[str, Any]:
    """Return figures under the names that the code has: some have older names in files."""
    channels = [msgspec.structs.asdict(channel) for channel in figures.channels]
    return {**msgspec.structs.asdict(figures), "channels": channels}
