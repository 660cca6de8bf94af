"""Watches running jobs: asks their drivers for live figures, and reads them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.common.live_figures import LiveFigures
from penstock.recovery.control import Control, Watch
from penstock.recovery.lease import Alive
from penstock.serve.jobs.cached_job import JobView

logger = logging.getLogger("penstock.serve")

_WATCH_S = 60.0
_RENEW_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Live:
    """The newest figures of a job; `is_stale` says that its driver does not report now."""

    figures: LiveFigures | None
    is_stale: bool


class LiveWatch:
    """Asks a driver again and again to report, as long as somebody asks for its job.

    A driver that nobody asks for stops reporting after a minute. Any thread may call.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._pause = pause
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, str], tuple[float, float]] = {}
        """When the driver of a job's attempt was asked first and last."""

    def of(self, job: JobView, wait_s: float = 0.0) -> Live:
        """Return the newest figures; wait for the first ones of a driver that was not watched."""
        owner = job.driver.owner if isinstance(job.driver, Alive) else None
        # A driver that has not reported since it was asked is not waited for again.
        deadline = 0.0 if owner is None else self._watch(job, owner.attempt) + wait_s
        while True:
            figures = job.directory.read_live()
            is_fresh = figures is not None and not figures.is_stale(self._clock())
            if owner is None or is_fresh or self._monotonic() >= deadline:
                return Live(figures, is_stale=owner is None or not is_fresh)
            self._pause(_POLL_S)

    def _watch(self, job: JobView, attempt: str) -> float:
        """Ask a driver to report; return when it was asked first."""
        key = str(job.directory.path), attempt
        now = self._monotonic()
        with self._lock:
            first, last = self._asked.get(key, (now, float("-inf")))
            if now - last < _RENEW_S:
                return first
            if now - last > _WATCH_S:
                first = now  # it has stopped reporting since
            self._asked = {k: at for k, at in self._asked.items() if now - at[1] < _WATCH_S}
            self._asked[key] = first, now
        try:
            Control(job.directory).submit(Watch(_WATCH_S))
        except OSError as error:
            # A user who may only read sees everything else.
            logger.debug("The driver of job %s cannot be asked: %s", job.overview.id, error)
        return first
