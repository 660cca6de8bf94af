"""Keeps statistics of checkpoints, recoveries and failures for users to look at.

Nothing depends on them: a lost or damaged record is left out. Only the newest records are kept.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Generic, TypeVar

import msgspec

from penstock.checkpoint.event_log import CheckpointEventRecord
from penstock.checkpoint.storage.file_storage import Storage
from penstock.checkpoint.storage.metadata import ChannelStats, SubtaskStats

DIRECTORY = "history"
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


class ExceptionRecord(msgspec.Struct, frozen=True):
    """One failure of a job; `step` is None if it belongs to no step."""

    time: float
    attempt: str
    step: str | None
    message: str
    traceback: str


class History:
    """The records of one job; only its driver writes, from any of its threads.

    `storage` is the job's directory. The limits say how many records of each kind are kept.
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

    def write(self, record: CheckpointStats) -> None:
        """Write the statistics of a checkpoint, replacing those with the same id."""
        self._storage.replace(_path(record.id), msgspec.json.encode(record))
        paths = self._paths()
        for path in paths[: max(0, len(paths) - self._checkpoints_kept)]:
            self._storage.delete(path)

    def checkpoints(self) -> list[CheckpointStats]:
        """Return the statistics of checkpoints, newest last."""
        found = (self._read(path) for path in self._paths())
        return [record for record in found if record is not None]

    def checkpoint(self, checkpoint: int) -> CheckpointStats | None:
        """Return the statistics of one checkpoint."""
        return self._read(_path(checkpoint))

    def add_recovery(self, recovery: Recovery) -> None:
        """Add a recovery."""
        self._recoveries.add(recovery)

    def recoveries(self) -> list[Recovery]:
        """Return the recoveries, newest last."""
        return self._recoveries.read()

    def add_exception(self, record: ExceptionRecord) -> None:
        """Add a failure."""
        self._exceptions.add(record)

    def exceptions(self) -> list[ExceptionRecord]:
        """Return the failures, newest last."""
        return self._exceptions.read()

    def _paths(self) -> list[str]:
        return [p for p in self._storage.list(DIRECTORY) if PurePosixPath(p).suffix == ".json"]

    def _read(self, path: str) -> CheckpointStats | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode(self._storage.read(path), type=CheckpointStats)
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
            records = [*self.read(), record]
            newest = records[max(0, len(records) - self._kept) :]
            lines = b"".join(msgspec.json.encode(r) + b"\n" for r in newest)
            self._storage.replace(self._path, lines)

    def read(self) -> list[_Record]:
        try:
            lines = self._storage.read(self._path).splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=self._kind))
        return found


def _path(checkpoint: int) -> str:
    return f"{DIRECTORY}/{checkpoint:012d}.json"
