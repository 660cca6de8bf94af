"""The jobs whose state is being looked up, with their open checkpoints."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.serve.http.answers import RestError
from penstock.serve.jobs.catalog import JobCatalog
from penstock.serve.queryable.job_reader import JobReader
from penstock.serve.queryable.scratch import Scratch

MOST_JOBS = 32
"""Whose checkpoints are open at the same time."""
_LOOK_EVERY_S = 0.2
_LOOK_EVERY_STORE_S = 1.0
"""In a store every look takes requests."""
_SWEEP_EVERY_S = 5.0
_REFRESHED_AT_ONCE = 4


class StateReaders:
    """Any thread may call; a job that is not queried for a minute is closed."""

    def __init__(self, jobs: JobCatalog, scratch: Path | None = None) -> None:
        """Read jobs of a catalog; `scratch` is where files go, else that for temporary files."""
        self._jobs = jobs
        self._scratch = Scratch(scratch)
        is_local = isinstance(jobs.directory, Path)
        self._look_every_s = _LOOK_EVERY_S if is_local else _LOOK_EVERY_STORE_S
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, JobReader] = OrderedDict()
        self._names: dict[str, str] = {}
        """Ids that callers have used, each with the id of its job."""
        self._closing: list[JobReader] = []
        self._refreshing: set[str] = set()
        self._pool = ThreadPoolExecutor(_REFRESHED_AT_ONCE, "state")
        self._stop = threading.Event()
        self._sweeper: threading.Thread | None = None

    def known(self, id_: str) -> JobReader | None:
        """Return the job with an id if it is open; never waits."""
        with self._lock:
            reader = self._readers.get(self._names.get(id_, ""))
        if reader is not None and reader.is_due:
            self._refresh_soon(reader)
        return reader

    def of(self, id_: str) -> JobReader:
        """Return the job with an id, ours or Flink's.

        Raises:
            RestError: there is none.
            OSError: the job cannot be read now.
        """
        found = self._jobs.find(id_)
        if found is None:
            raise RestError(404, f"Job {id_} not found")
        cached, _ = found
        key = str(cached.directory.key)
        with self._lock:
            reader = self._readers.get(key)
            if reader is None:
                reader = JobReader(cached, self._scratch, self._look_every_s)
                self._readers[key] = reader
            self._readers.move_to_end(key)
            self._names[id_] = key
            while len(self._readers) > MOST_JOBS:
                self._closing.append(self._readers.popitem(last=False)[1])
            if self._sweeper is None and not self._stop.is_set():
                self._sweeper = threading.Thread(
                    target=self._sweep, name="state-sweeper", daemon=True
                )
                self._sweeper.start()
        return reader

    def close(self) -> None:
        """Close everything and remove all files."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        if self._sweeper is not None:
            self._sweeper.join()
        for reader in [*self._readers.values(), *self._closing]:
            reader.close()
        self._scratch.close()

    def _refresh_soon(self, reader: JobReader) -> None:
        key = str(reader.job.key)
        with self._lock:
            if key in self._refreshing or self._stop.is_set():
                return
            self._refreshing.add(key)
        self._pool.submit(self._refresh, key, reader)

    def _refresh(self, key: str, reader: JobReader) -> None:
        try:
            reader.refresh()
        except Exception as error:
            reader.log(error)
        finally:
            with self._lock:
                self._refreshing.discard(key)

    def _sweep(self) -> None:
        while not self._stop.wait(_SWEEP_EVERY_S):
            with self._lock:
                for key in [key for key, reader in self._readers.items() if reader.is_idle]:
                    self._closing.append(self._readers.pop(key))
                self._names = {n: k for n, k in self._names.items() if k in self._readers}
                closing = [reader for reader in self._closing if not reader.is_in_use]
                self._closing = [reader for reader in self._closing if reader not in closing]
                kept = list(self._readers.values())
            for reader in closing:
                reader.close()
            for reader in kept:
                reader.tidy()
