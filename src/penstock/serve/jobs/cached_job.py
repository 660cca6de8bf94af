"""Reads one job from its directory, and reads again only what may have changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    ExceptionRecord,
    History,
    Recovery,
)
from penstock.checkpoint.storage.job_dir import JobDir, JobFacts
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.client.job_overview import JobOverview, last_checkpoint_of, overview_of
from penstock.errors import CorruptJournalError
from penstock.recovery.lease import DriverStatus, Free, driver_status

_FEW = 3
_READ_AT_ONCE = 8


class JobView(msgspec.Struct, frozen=True):
    """What is known of a job at one time."""

    directory: JobDir
    facts: JobFacts | None
    """What the job is; None if `job.json` is missing or damaged."""
    state: JournalState | None
    """What its journal says; None if that is damaged."""
    driver: DriverStatus
    overview: JobOverview
    time: float
    """When it was read, in seconds since the epoch."""


def unreadable_job(directory: JobDir, last: JobView | None, now: float) -> JobView:
    """Return what is shown of a job whose directory cannot be read now; it may run or not."""
    facts = None if last is None else last.facts
    name = directory.key if facts is None else facts.name
    last_checkpoint = None if last is None else last.overview.last_checkpoint
    unreadable = [str(directory.path)]
    overview = overview_of(directory, name, None, Free(), last_checkpoint, unreadable)
    return JobView(directory, facts, None, Free(), overview, now)


class CachedJob:
    """One job; any thread may call.

    A file of the journal and the record of an ended checkpoint never change, so they are read once
    as long as the directory has the same job instance.
    """

    def __init__(self, directory: JobDir, heartbeat_timeout_s: float) -> None:
        self.directory = directory
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._lock = threading.Lock()
        self._instance: str | None = None
        self._tail = 0
        self.last: JobView | None = None
        """What was read last."""
        self._forget()

    def read(self, now: float) -> JobView | None:
        """Return the job as it is now; None if there is no job in the directory any more.

        Raises:
            OSError: the directory cannot be read now.
        """
        with self._lock:
            directory = self.directory
            instance, tail = directory.existing_instance(), self._journal.newest()
            facts = directory.read_facts()
            if tail == 0 and facts is None:
                self._forget()
                self.last = None
                return None
            if instance != self._instance or tail < self._tail:
                self._forget()
            self._instance = instance
            state = self._state_at(tail)
            driver = driver_status(directory, self._heartbeat_timeout_s, now)
            self._history.unreadable.clear()
            last = last_checkpoint_of(self._newest_first(), directory)
            name = directory.key if facts is None else facts.name
            unreadable = sorted(self._history.unreadable)
            overview = overview_of(directory, name, state, driver, last, unreadable)
            self.last = JobView(directory, facts, state, driver, overview, now)
            return self.last

    def checkpoints(self) -> Sequence[CheckpointStats]:
        """Return the statistics of checkpoints, newest first.

        Raises:
            OSError: they cannot be listed now.
        """
        with self._lock:
            missing = [id_ for id_ in self._history.checkpoint_ids() if id_ not in self._ended]
            if len(missing) > _FEW:
                # In a store each of them is a request.
                with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
                    list(pool.map(self._record, missing))
            return list(self._newest_first())

    def checkpoint(self, checkpoint: int) -> CheckpointStats | None:
        """Return the statistics of one checkpoint, None if there are none."""
        with self._lock:
            return self._record(checkpoint)

    def recoveries(self) -> list[Recovery]:
        """Return the recoveries that are known, newest first."""
        return History(self.directory.storage).recoveries()[::-1]

    def exceptions(self) -> list[ExceptionRecord]:
        """Return the failures that are known, newest first."""
        return History(self.directory.storage).exceptions()[::-1]

    def _forget(self) -> None:
        self._journal = Journal(self.directory.storage, self.directory.key)
        self._history = History(self.directory.storage)
        self._tail = 0
        self._state: JournalState | None = None
        self._ended: dict[int, CheckpointStats] = {}

    def _state_at(self, tail: int) -> JournalState | None:
        if tail != self._tail or self._state is None:
            try:
                self._state = self._journal.state()
                self._tail = tail
            except CorruptJournalError:
                # The next look may find it repaired: nothing of it is kept.
                self._journal = Journal(self.directory.storage, self.directory.key)
                self._state = None
        return self._state

    def _newest_first(self) -> Iterator[CheckpointStats]:
        ids = self._history.checkpoint_ids()
        self._ended = {id_: self._ended[id_] for id_ in ids if id_ in self._ended}
        for id_ in reversed(ids):
            if (record := self._record(id_)) is not None:
                yield record

    def _record(self, checkpoint: int) -> CheckpointStats | None:
        found = self._ended.get(checkpoint)
        if found is None:
            found = self._history.checkpoint(checkpoint)
            if found is not None and found.status is not CheckpointStatus.PENDING:
                self._ended[checkpoint] = found
        return found
