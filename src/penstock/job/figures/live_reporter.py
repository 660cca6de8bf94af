"""Writes the figures of a running job into its directory while somebody watches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common.live_figures import LiveFigures
from penstock.common.storage_url import StorageUrl

logger = logging.getLogger("penstock.job")

LONGEST_WATCH_S = 3600.0
"""Who wants to watch for longer asks again: what nobody reads is not written for ever."""
_INTERVAL_S = 1.0
_INTERVAL_STORE_S = 2.0
"""In a store every report is a request, which costs."""
_CLOSE_S = 5.0


class LiveReporter:
    """Reports in a thread of its own until the last watch is over; never affects the job."""

    def __init__(
        self,
        job_dir: JobDir,
        figures: Callable[[], LiveFigures],
        check_owner: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Report what `figures` returns; `check_owner` raises if another driver runs the job."""
        self._dir = job_dir
        self._figures = figures
        self._check_owner = check_owner
        self._monotonic = monotonic
        self._interval_s = (
            _INTERVAL_STORE_S if isinstance(job_dir.root, StorageUrl) else _INTERVAL_S
        )
        self._lock = threading.Lock()
        """Guards the two below: a watch may come while the thread ends."""
        self._until = 0.0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._has_written = False
        self._problem = ""
        """Why the last report failed; logged when it changes."""

    def watch(self, seconds: float) -> float:
        """Report for some seconds from now on; return for how many."""
        seconds = min(max(seconds, 0.0), LONGEST_WATCH_S)
        with self._lock:
            self._until = max(self._until, self._monotonic() + seconds)
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="live-figures", daemon=True)
                self._thread.start()
        return seconds

    def close(self) -> None:
        """Stop, and remove the report; never raises."""
        with self._lock:
            self._stop.set()
            thread = self._thread
        if thread is not None:
            # It may wait for an engine or a storage that hangs: the job must not.
            thread.join(_CLOSE_S)
        if self._has_written:
            self._try(self._dir.delete_live)

    def _run(self) -> None:
        while self._is_watched():
            self._try(self._report)
            self._stop.wait(self._interval_s)

    def _is_watched(self) -> bool:
        with self._lock:
            if self._stop.is_set() or self._monotonic() >= self._until:
                self._thread = None
            return self._thread is not None

    def _report(self) -> None:
        figures = msgspec.structs.replace(self._figures(), interval=self._interval_s)
        self._dir.write_live(figures)
        self._has_written = True

    def _try(self, action: Callable[[], None]) -> None:
        try:
            self._check_owner()  # the next driver's report is its own
            action()
        except Exception as error:
            if str(error) != self._problem:
                logger.warning("The live figures of the job cannot be written: %s", error)
            self._problem = str(error)
        else:
            self._problem = ""
