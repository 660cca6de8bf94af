"""What is remembered of checkpoints, recoveries and failures, for people to look at.

Nothing here decides anything: a record that was lost or damaged is left out. Everything survives
the driver, and only the newest records are kept.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Generic, TypeVar

import msgspec

from penstock.checkpoint.metadata import ChannelStats, SubtaskStats
from penstock.checkpoint.storage import Storage
from penstock.checkpoint.story import StoryLine

__all__ = [
    "CheckpointRecord",
    "ExceptionRecord",
    "History",
    "OperatorRecord",
    "RecordStatus",
    "Recovery",
]

DIRECTORY = "history"
_KEPT = 100


class RecordStatus(StrEnum):
    """How a checkpoint stands."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class OperatorRecord(msgspec.Struct, frozen=True):
    """What a checkpoint cost one operator, by subtask and by input."""

    uid: str
    name: str
    stats: list[SubtaskStats] = []
    channels: list[ChannelStats] = []


class CheckpointRecord(msgspec.Struct, frozen=True):
    """One checkpoint or savepoint, whatever became of it."""

    id: int
    kind: str
    status: RecordStatus
    attempt: str
    triggered: float
    duration_s: float = 0.0
    new_bytes: int = 0
    full_bytes: int = 0
    operators: list[OperatorRecord] = []
    path: str | None = None
    failure: str | None = None
    story: list[StoryLine] = []
    barriers: str = "aligned"
    """How they were passed, a value of `cut.Passing`; the one they ended with."""
    bytes_held: int = 0
    """Of all channels, the most that waited behind barriers."""
    in_flight_bytes: int = 0
    """Of all channels, what barriers overtook and the checkpoint holds."""


class Recovery(msgspec.Struct, frozen=True):
    """One recovery, and what took how long; `checkpoint` is None if there was none yet."""

    attempt: str
    checkpoint: int | None
    cause: str
    detect_s: float
    redeploy_s: float
    load_state_s: float
    reset_sources_s: float
    reset_sinks_s: float
    time: float


class ExceptionRecord(msgspec.Struct, frozen=True):
    """One failure of a job; `step` is None if it belongs to none."""

    time: float
    attempt: str
    step: str | None
    message: str
    traceback: str


class History:
    """The records of one job. Only its driver writes, from any of its threads; anyone reads.

    `storage` is the job's directory. Limits: how many records of each kind are kept.
    """

    def __init__(
        self,
        storage: Storage,
        checkpoints_kept: int = _KEPT,
        recoveries_kept: int = _KEPT,
        exceptions_kept: int = _KEPT,
    ) -> None:
        self._storage = storage
        self._checkpoints_kept = checkpoints_kept
        self._recoveries = _Lines(storage, "recoveries.jsonl", Recovery, recoveries_kept)
        self._exceptions = _Lines(storage, "exceptions.jsonl", ExceptionRecord, exceptions_kept)

    def write(self, record: CheckpointRecord) -> None:
        """Keep the record of a checkpoint; a later one of the same id takes its place."""
        self._storage.replace(_path(record.id), msgspec.json.encode(record))
        paths = self._paths()
        for path in paths[: max(0, len(paths) - self._checkpoints_kept)]:
            self._storage.delete(path)

    def checkpoints(self) -> list[CheckpointRecord]:
        """Return what is kept of checkpoints, newest last."""
        found = (self._read(path) for path in self._paths())
        return [record for record in found if record is not None]

    def checkpoint(self, checkpoint: int) -> CheckpointRecord | None:
        """Return what is kept of one checkpoint."""
        return self._read(_path(checkpoint))

    def add_recovery(self, recovery: Recovery) -> None:
        """Keep a recovery."""
        self._recoveries.add(recovery)

    def recoveries(self) -> list[Recovery]:
        """Return what is kept of recoveries, newest last."""
        return self._recoveries.read()

    def add_exception(self, record: ExceptionRecord) -> None:
        """Keep a failure."""
        self._exceptions.add(record)

    def exceptions(self) -> list[ExceptionRecord]:
        """Return what is kept of failures, newest last."""
        return self._exceptions.read()

    def _paths(self) -> list[str]:
        return [p for p in self._storage.list(DIRECTORY) if PurePosixPath(p).suffix == ".json"]

    def _read(self, path: str) -> CheckpointRecord | None:
        try:
            return msgspec.json.decode(self._storage.read(path), type=CheckpointRecord)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


_Record = TypeVar("_Record", bound=msgspec.Struct)


class _Lines(Generic[_Record]):
    """A file with a record per line, the newest last; written as a whole, so never torn."""

    def __init__(self, storage: Storage, name: str, kind: type[_Record], kept: int) -> None:
        self._storage = storage
        self._path = f"{DIRECTORY}/{name}"
        self._kind = kind
        self._kept = kept
        self._lock = threading.Lock()

    def add(self, record: _Record) -> None:
        with self._lock:
            all_of_them = [*self.read(), record]
            newest = all_of_them[max(0, len(all_of_them) - self._kept) :]
            lines = b"".join(msgspec.json.encode(r) + b"\n" for r in newest)
            self._storage.replace(self._path, lines)

    def read(self) -> list[_Record]:
        try:
            lines = self._storage.read(self._path).splitlines()
        except FileNotFoundError:
            return []
        found = (self._decode(line) for line in lines)
        return [record for record in found if record is not None]

    def _decode(self, line: bytes) -> _Record | None:
        try:
            return msgspec.json.decode(line, type=self._kind)
        except msgspec.DecodeError:
            return None


def _path(checkpoint: int) -> str:
    return f"{DIRECTORY}/{checkpoint:012d}.json"
