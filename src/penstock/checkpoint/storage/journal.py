"""The journal of a job: an append-only log that fences drivers and completes checkpoints.

An entry is a file named by its index, created only if absent. The driver that creates the next
index has written the next fact; a driver that was suspended while another one took over finds its
next index taken, and so is fenced. A checkpoint is complete when its entry exists, and not before.

From time to time a summary replaces all entries before it. A suspended driver may create a deleted
index again; it is before the newest summary, so no driver reads it, and its writer sees the higher
indexes and stops.
"""

from __future__ import annotations

import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    JournalEntry,
    JournalState,
    Summary,
)
from penstock.checkpoint.storage.journal_state import journal_state
from penstock.crash_points import CrashPoint, reach
from penstock.errors import CorruptJournalError, FencedError
from penstock.storage.contract import Storage

DIRECTORY = "journal"
_DIGITS = 12
_SUMMARISE_AFTER = 1000
_READ_AT_ONCE = 8


class _Body(msgspec.Struct, frozen=True):
    entry: msgspec.Raw
    crc: int


class Journal:
    """The journal as one driver or reader sees it; any thread may call.

    A driver reads, then appends its `AttemptStarted`: from then on this object remembers the tail
    it knows, and whatever it appends is refused once another driver has appended anything.
    """

    def __init__(self, storage: Storage, job: str, summarise_after: int = _SUMMARISE_AFTER) -> None:
        self._storage = storage
        self._job = job
        self._summarise_after = summarise_after
        # The coordinator, the commit executor and the job append from their own threads.
        self._lock = threading.RLock()
        self._tail = 0
        self._attempt: str | None = None
        self._unsure: bytes | None = None
        """The bytes of an entry whose write raised an OSError: it may exist all the same."""
        self._landed: bytes | None = None
        """The bytes of the last entry, if its write raised an OSError and yet it exists."""
        self._known: dict[int, JournalEntry] = {}
        """Entries that were read or written: an entry never changes while it counts."""

    @property
    def attempt(self) -> str | None:
        """The attempt that this journal writes for, None before one has won."""
        return self._attempt

    def adopt(self, attempt: str) -> None:
        """Write for an attempt that has ended the job and whose driver died after that.

        Called after `state`: like the dead driver, this one is fenced if another appends first.
        """
        self._attempt = attempt

    def entries(self) -> list[tuple[int, JournalEntry]]:
        """Read all entries with their indexes, from the newest summary on.

        Raises:
            FencedError: if this driver has an attempt and another one has appended since.
            CorruptJournalError: if an entry is missing or damaged.
        """
        with self._lock:
            self._resolve_unsure()
            while True:
                indexes = self._indexes()
                try:
                    found = self._read_back(indexes)
                    break
                except CorruptJournalError:
                    # What is missing may have been summarised just now.
                    if self._indexes() == indexes:
                        raise
            if self._attempt is None:
                self._tail = indexes[-1] if indexes else 0
            else:
                self._check(indexes)
            return found

    def state(self) -> JournalState:
        """Read all entries and return what they mean; raises like `entries`."""
        return journal_state(self.entries())

    def newest(self) -> int:
        """Return the index of the newest entry on disk without reading it, 0 if there is none."""
        indexes = self._indexes()
        return indexes[-1] if indexes else 0

    def append(self, entry: JournalEntry) -> int:
        """Write the next entry, after everything this journal has read or written.

        After an OSError the entry may exist or not; appending it again writes it once.

        Raises:
            FencedError: if another driver has appended; the entry does not count.
            ValueError: if the entry is of another attempt than this journal's.
        """
        if not isinstance(entry, AttemptStarted) and entry.attempt != self._attempt:
            msg = f"{entry} is not of attempt {self._attempt}, which this journal writes for"
            raise ValueError(msg)
        with self._lock:
            reach(CrashPoint.JOURNAL_BEFORE_APPEND)
            indexes = self._append(entry)
            if isinstance(entry, AttemptStarted):
                self._attempt = entry.attempt
            reach(CrashPoint.JOURNAL_AFTER_APPEND)
            if len(indexes) > self._summarise_after:
                # The entry exists; a summary that fails is tried again with the next entry.
                with suppress(OSError):
                    self._summarise()
            return self._tail

    def check_tail(self) -> None:
        """Make sure that this driver is not fenced; called before it deletes or commits.

        Raises:
            FencedError: if another driver has appended.
        """
        with self._lock:
            self._resolve_unsure()
            self._check(self._indexes())

    def _read_back(self, indexes: list[int]) -> list[tuple[int, JournalEntry]]:
        found: list[tuple[int, JournalEntry]] = []
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            new = {i: pool.submit(self._read, i) for i in indexes if i not in self._known}
            for index, below in zip(reversed(indexes), [*indexes[-2::-1], 0], strict=False):
                entry = new[index].result() if index in new else self._known[index]
                found.append((index, entry))
                if isinstance(entry, Summary):
                    break
                if below != index - 1:
                    raise CorruptJournalError(self._location(index - 1), "it is missing")
        self._known = dict(found)
        return found[::-1]

    def _append(self, entry: JournalEntry) -> list[int]:
        body = _encode(entry)
        self._resolve_unsure()
        if body != self._landed:
            is_local = isinstance(self._storage.root, Path)
            if is_local and self._tail and not self._storage.exists(_path(self._tail)):
                # Summarised by another driver, or the directory is gone, as after an unmount. In a
                # store only the former can be, which the listing below shows.
                self._check(self._indexes(), entry.attempt)
            try:
                self._unsure = body
                self._storage.create(_path(self._tail + 1), body)
            except FileExistsError:
                self._unsure = None
                raise self._fenced(entry.attempt, self._tail + 1) from None
            self._tail += 1
        self._unsure = None
        self._known[self._tail] = entry
        # If the listing fails, appending the entry again does not write it twice.
        self._landed = body
        indexes = self._indexes()
        self._landed = None
        self._check(indexes, entry.attempt)
        if self._tail > 1 and self._tail - 1 not in indexes:
            # The directory was deleted, and creating the entry has brought back only that.
            raise CorruptJournalError(self._location(self._tail - 1), "it is missing")
        return indexes

    def _resolve_unsure(self) -> None:
        """Find out whether a write that failed with an OSError has happened."""
        if self._unsure is None:
            return
        path = _path(self._tail + 1)
        if self._storage.exists(path) and self._storage.read(path) == self._unsure:
            self._tail += 1
            self._landed = self._unsure
        self._unsure = None

    def _summarise(self) -> None:
        entries = self.entries()
        summary = Summary(self._attempt or "", time.time(), journal_state(entries))
        # The summary before the deletions: after a crash in between, entries are there twice.
        replaced = [index for index in self._append(summary) if index < self._tail]
        self._storage.delete_all(map(_path, replaced))

    def _indexes(self) -> list[int]:
        names = [path.rpartition("/")[2] for path in self._storage.list(DIRECTORY)]
        return [int(n) for n in names if len(n) == _DIGITS and n.isdecimal()]

    def _check(self, indexes: list[int], attempt: str | None = None) -> None:
        if indexes and indexes[-1] > self._tail:
            raise self._fenced(attempt or self._attempt or "", indexes[-1])
        if (indexes[-1] if indexes else 0) < self._tail:
            raise CorruptJournalError(self._location(self._tail), "it is missing")

    def _fenced(self, attempt: str, index: int) -> FencedError:
        return FencedError(self._job, attempt, self._read(index).attempt)

    def _read(self, index: int) -> JournalEntry:
        try:
            body = msgspec.json.decode(self._storage.read(_path(index)), type=_Body)
            if zlib.crc32(bytes(body.entry)) != body.crc:
                raise CorruptJournalError(self._location(index), "its checksum is wrong")
            entry: JournalEntry = msgspec.json.decode(body.entry, type=JournalEntry)
        except FileNotFoundError:
            raise CorruptJournalError(self._location(index), "it is missing") from None
        except msgspec.DecodeError as error:
            raise CorruptJournalError(self._location(index), str(error)) from None
        return entry

    def _location(self, index: int) -> str:
        return self._storage.location(_path(index))


def _path(index: int) -> str:
    return f"{DIRECTORY}/{index:0{_DIGITS}d}"


def _encode(entry: JournalEntry) -> bytes:
    raw = msgspec.json.encode(entry)
    return msgspec.json.encode(_Body(msgspec.Raw(raw), zlib.crc32(raw)))
