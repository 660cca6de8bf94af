"""Keeps statistics of checkpoints, recoveries and failures for users to look at.

Nothing depends on them: a record that cannot be written or read is left out, and no caller gets an
exception. Only the newest records are kept, and of long texts only the beginning and the end.
"""

from __future__ import annotations

import bisect
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from penstock.checkpoint.event_log import CheckpointEventRecord
from penstock.checkpoint.storage.metadata import ChannelStats, SubtaskStats
from penstock.common.config.recovery_options import MAX_EXCEPTION_TEXT
from penstock.common.text.tolerant_json import decode_json, encode_json
from penstock.redaction import redact
from penstock.storage.contract import Storage

logger = logging.getLogger("penstock.checkpoint")

DIRECTORY = "history"
_READ_AT_ONCE = 8
_KEPT = 100


class CheckpointStatus(StrEnum):
    """The status of a checkpoint."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class OperatorStats(msgspec.Struct, frozen=True):
    """Statistics of one operator, by subtask and by input."""

    uid: str
    name: str
    stats: list[SubtaskStats] = []
    channels: list[ChannelStats] = []


class LoadStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job processed in a span of time; from it `penstock.models` learns rates."""

    seconds: float = 0.0
    records: int = 0
    """Read by the sources."""
    region_records: int = 0
    """Processed by the region whose tasks worked the longest; the rest is about that one."""
    batches: int = 0
    busy_s: float = 0.0
    """In micro-batches, from submission to publication."""
    working_s: float = 0.0
    """Of these, in the slowest task of each stage; the rest does not depend on the records."""


class CheckpointStats(msgspec.Struct, frozen=True):
    """Statistics of one checkpoint or savepoint, completed or not."""

    id: int
    kind: str
    status: CheckpointStatus
    attempt: str
    triggered: float
    duration_s: float = 0.0
    new_bytes: int = 0
    full_bytes: int = 0
    operators: list[OperatorStats] = []
    path: str | None = None
    failure: str | None = None
    events: list[CheckpointEventRecord] = msgspec.field(default_factory=list, name="story")
    barriers: str = "aligned"
    """The value of the `BarrierHandling` that the checkpoint ended with."""
    blocked_bytes: int = msgspec.field(default=0, name="bytes_held")
    """Of all channels, the most bytes that were blocked after barriers."""
    in_flight_bytes: int = 0
    """Of all channels, what barriers overtook and the checkpoint stores."""
    load_before: LoadStats | None = None
    """From the end of the checkpoint before until the trigger; None if it was not measured."""
    load_during: LoadStats | None = None
    """From the trigger until the completion."""


class Recovery(msgspec.Struct, frozen=True):
    """The duration of one recovery, by part; `checkpoint` is None if there was none yet."""

    attempt: str
    checkpoint: int | None
    cause: str
    detect_s: float
    redeploy_s: float
    load_state_s: float
    reset_sources_s: float
    reset_sinks_s: float
    time: float
    """When the sinks were reset."""
    loaded_bytes: int = 0
    """Of state, read for the restore."""
    snapshot_age_s: float | None = None
    """When the failure came, how long ago the restored checkpoint was triggered."""
    catch_up_began_s: float | None = None
    """From `time` until the region that worked the longest began to process records."""
    caught_up_s: float | None = None
    """From `time` until everything that the sources had was processed; None if not known (yet)."""
    catch_up_records: int = 0
    """Read by the sources until then."""


class ExceptionRecord(msgspec.Struct, frozen=True):
    """One failure of a job; `step` is None if it belongs to no step."""

    time: float
    attempt: str
    step: str | None
    message: str
    traceback: str


class History:
    """The records of one job; only its driver writes, from any of its threads.

    `storage` is the job's directory. The limits say how many records of each kind are kept, and how
    many characters a text in them may have. Credentials in texts are hidden.
    """

    def __init__(
        self,
        storage: Storage,
        checkpoints_kept: int = _KEPT,
        recoveries_kept: int = _KEPT,
        exceptions_kept: int = _KEPT,
        longest_text: int = MAX_EXCEPTION_TEXT.default,
    ) -> None:
        self._storage = storage
        self._checkpoints_kept = checkpoints_kept
        self._longest_text = longest_text
        self._lock = threading.Lock()
        self._written: list[str] | None = None
        """The paths of checkpoints that there are, sorted; None before the first is written."""
        self._recoveries = _Lines(storage, "recoveries.jsonl", Recovery, recoveries_kept)
        self._exceptions = _Lines(storage, "exceptions.jsonl", ExceptionRecord, exceptions_kept)
        self._problem = ""
        """Why the last record could not be written; logged when it changes."""
        self.unreadable: set[str] = set()
        """The files and lines that `checkpoints`, `recoveries` and `exceptions` left out."""

    def write(self, record: CheckpointStats) -> None:
        """Write the statistics of a checkpoint, replacing those with the same id; never raises."""
        events = [msgspec.structs.replace(e, detail=self._text(e.detail)) for e in record.events]
        failure = None if record.failure is None else self._text(record.failure)
        shown = msgspec.structs.replace(record, failure=failure, events=events)
        self._try(f"checkpoint {record.id}", lambda: self._write(shown))

    def checkpoints(self) -> list[CheckpointStats]:
        """Return the statistics of checkpoints, newest last; never raises."""
        try:
            with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
                found = list(pool.map(self._read, self._paths()))
        except OSError:
            self.unreadable.add(DIRECTORY)
            return []
        return [record for record in found if record is not None]

    def checkpoint_ids(self) -> list[int]:
        """Return the ids of the checkpoints that have statistics, newest last.

        Raises:
            OSError: they cannot be listed now.
        """
        names = [path.rpartition("/")[2].removesuffix(".json") for path in self._paths()]
        return [int(name) for name in names if name.isascii() and name.isdecimal()]

    def checkpoint(self, checkpoint: int) -> CheckpointStats | None:
        """Return the statistics of one checkpoint; never raises."""
        return self._read(_path(checkpoint))

    def add_recovery(self, recovery: Recovery) -> None:
        """Add a recovery; never raises."""
        shown = msgspec.structs.replace(recovery, cause=self._text(recovery.cause))
        self._try("the recovery", lambda: self._recoveries.add(shown))

    def replace_recovery(self, recovery: Recovery) -> None:
        """Replace the newest recovery if it is of the same attempt; never raises."""
        shown = msgspec.structs.replace(recovery, cause=self._text(recovery.cause))
        self._try("the recovery", lambda: self._replace_recovery(shown))

    def recoveries(self) -> list[Recovery]:
        """Return the recoveries, newest last; never raises."""
        return self._recoveries.read(self.unreadable)

    def add_exception(self, record: ExceptionRecord) -> None:
        """Add a failure; never raises."""
        message, traceback = self._text(record.message), self._text(record.traceback)
        shown = msgspec.structs.replace(record, message=message, traceback=traceback)
        self._try("the failure", lambda: self._exceptions.add(shown))

    def exceptions(self) -> list[ExceptionRecord]:
        """Return the failures, newest last; never raises."""
        return self._exceptions.read(self.unreadable)

    def _replace_recovery(self, recovery: Recovery) -> None:
        self._recoveries.replace_newest(recovery, lambda r: r.attempt == recovery.attempt)

    def _text(self, text: str) -> str:
        return shorten(redact(text), self._longest_text)

    def _try(self, what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            if str(error) != self._problem:
                logger.warning("The history of the job lacks %s: %s", what, error)
            self._problem = str(error)
        else:
            self._problem = ""

    def _write(self, record: CheckpointStats) -> None:
        path = _path(record.id)
        self._storage.replace(path, encode_json(record))
        with self._lock:
            # Listed once: a store takes a request for it, and only this driver writes here.
            paths = self._written
            if paths is None:
                paths = self._written = self._paths()
            if path not in paths:
                bisect.insort(paths, path)
            oldest = paths[: max(0, len(paths) - self._checkpoints_kept)]
            self._storage.delete_all(oldest)
            del paths[: len(oldest)]

    def _paths(self) -> list[str]:
        return [p for p in self._storage.list(DIRECTORY) if p.endswith(".json")]

    def _read(self, path: str) -> CheckpointStats | None:
        try:
            return decode_json(self._storage.read(path), CheckpointStats)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError):
            self.unreadable.add(path)
            return None


_Record = TypeVar("_Record", bound=msgspec.Struct)


class _Lines(Generic[_Record]):
    """A file with one record per line, newest last; replaced as a whole, so never torn."""

    def __init__(self, storage: Storage, name: str, kind: type[_Record], kept: int) -> None:
        self._storage = storage
        self._path = f"{DIRECTORY}/{name}"
        self._kind = kind
        self._kept = kept
        self._lock = threading.Lock()

    def add(self, record: _Record) -> None:
        with self._lock:
            self._write([*self.read(set()), record])

    def replace_newest(self, record: _Record, is_same: Callable[[_Record], bool]) -> None:
        with self._lock:
            records = self.read(set())
            if records and is_same(records[-1]):
                self._write([*records[:-1], record])

    def _write(self, records: Sequence[_Record]) -> None:
        newest = records[max(0, len(records) - self._kept) :]
        self._storage.replace(self._path, b"".join(encode_json(r) + b"\n" for r in newest))

    def read(self, unreadable: set[str]) -> list[_Record]:
        """Return the records that can be read; add the names of the others to `unreadable`."""
        try:
            lines = self._storage.read(self._path).splitlines()
        except FileNotFoundError:
            return []
        except OSError:
            unreadable.add(self._path)
            return []
        found = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(decode_json(line, self._kind))
            except msgspec.DecodeError:
                unreadable.add(f"{self._path}, line {number}")
        return found


def shorten(text: str, longest: int) -> str:
    """Return a text without its middle if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    head, tail = text[: longest - longest // 2], text[len(text) - longest // 2 :]
    note = f"{len(text) - longest:,} characters are cut: {MAX_EXCEPTION_TEXT.key} is {longest}"
    return f"{head}\n… {note} …\n{tail}"


def _path(checkpoint: int) -> str:
    return f"{DIRECTORY}/{checkpoint:012d}.json"
