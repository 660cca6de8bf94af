"""The jobs of a checkpoint directory, as a server shows them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

from penstock.checkpoint.storage.job_dir import JobDir, is_job
from penstock.common.storage_url import Location
from penstock.ids import JobKey
from penstock.recovery.lease import Free
from penstock.serve.jobs.cached_job import CachedJob, JobView, unreadable_job
from penstock.serve.jobs.hex_ids import hex_id
from penstock.storage.storages import storage_at

_READ_AT_ONCE = 16
_MAX_AGE_S = 1.0
_MAX_AGE_STORE_S = 5.0
_MAX_AGE_ENDED_S = 30.0
_WAIT_S = 0.2
"""How long a caller waits for a new look before it gets an older one."""
_OLD_S = 30.0
"""Older than this nothing is shown without a new look, and no job that cannot be read now."""


class JobCatalog:
    """Looks into a checkpoint directory at most once per second; any thread may call.

    What is asked of one job is read when it is asked.
    """

    def __init__(
        self,
        directory: Location,
        heartbeat_timeout_s: float,
        storage_options: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._options = dict(storage_options or {})
        self._clock = clock
        self._monotonic = monotonic
        is_local = isinstance(directory, Path)
        self._max_age_s = _MAX_AGE_S if is_local else _MAX_AGE_STORE_S
        self._readers = ThreadPoolExecutor(1 if is_local else _READ_AT_ONCE, "jobs")
        self._looks = ThreadPoolExecutor(1, "catalog")
        self._lock = threading.Lock()
        self._cached: dict[str, CachedJob] = {}
        self._views: list[JobView] = []
        self._taken = float("-inf")
        self._look: Future[None] | None = None

    def jobs(self) -> list[JobView]:
        """Return all jobs, by id; what is shown may be a second old, or older if reading is slow.

        Raises:
            OSError: the directory cannot be read.
        """
        age = self._monotonic() - self._taken
        if age > self._max_age_s:
            look = self._begin_look()
            try:
                look.result(timeout=_WAIT_S if age <= _OLD_S else None)
            except NotYet:
                if look.done():
                    raise
        return self._views

    def find(self, id_: str) -> tuple[CachedJob, JobView] | None:
        """Return a job by its id, ours or Flink's, as it is now; None if there is none.

        The id is compared with those of the jobs that there are: it never becomes a path.

        Raises:
            OSError: the job cannot be read now.
        """
        for attempt in range(2):
            with self._lock:
                found = self._cached.get(id_) or next(
                    (job for key, job in self._cached.items() if hex_id(key) == id_), None
                )
            if found is not None:
                view = found.read(self._clock())
                return None if view is None else (found, view)
            if attempt == 0:
                # A job may have started since the last look.
                self._find_new(id_)
        return None

    def _find_new(self, id_: str) -> None:
        """Look for one job, and at no other one: any caller can make up ids."""
        for name in storage_at(self.directory).children(""):
            if id_ in (name, hex_id(name)):
                pair = self._read(name, {}, self._clock())
                if pair is not None:
                    with self._lock:
                        self._cached.setdefault(name, pair[0])

    def close(self) -> None:
        """End the threads."""
        self._looks.shutdown(wait=False, cancel_futures=True)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _is_recent(self, view: JobView | None, now: float) -> bool:
        """Whether a job need not be read again: in a store that takes requests, which cost."""
        if view is None or view.state is None or isinstance(self.directory, Path):
            return False
        is_over = view.state.ended is not None and isinstance(view.driver, Free)
        return is_over and 0 <= now - view.time < _MAX_AGE_ENDED_S

    def _begin_look(self) -> Future[None]:
        with self._lock:
            if self._look is None or self._look.done():
                self._look = self._looks.submit(self._take)
            return self._look

    def _take(self) -> None:
        names = storage_at(self.directory).children("")
        with self._lock:
            known = dict(self._cached)
        now = self._clock()
        reads = self._readers.map(lambda name: self._read(name, known, now), names)
        found = dict(zip(names, reads, strict=True))
        jobs = {name: pair for name, pair in found.items() if pair is not None}
        with self._lock:
            self._cached = {name: job for name, (job, _) in jobs.items()}
            self._views = [view for _, view in jobs.values()]
            self._taken = self._monotonic()

    def _read(
        self, name: str, known: Mapping[str, CachedJob], now: float
    ) -> tuple[CachedJob, JobView] | None:
        job = known.get(name)
        if job is None:
            directory = JobDir(self.directory, JobKey(name), self._options)
            if not is_job(directory):
                return None
            job = CachedJob(directory, self._heartbeat_timeout_s)
        if self._is_recent(job.last, now):
            return None if job.last is None else (job, job.last)
        try:
            view = job.read(now)
        except OSError:
            # One job that cannot be read now does not hide the others.
            view = job.last
            if view is None or not 0 <= now - view.time < _OLD_S:
                view = unreadable_job(job.directory, view, now)
        return None if view is None else (job, view)
