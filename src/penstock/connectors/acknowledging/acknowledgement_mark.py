"""Stores durably up to which snapshot point messages may have been acknowledged.

Restoring an earlier snapshot would lose records: the broker no longer delivers them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.ids import is_no_later
from penstock.storage.durable_files import make_directory, replace_file

_PREFIX = "acknowledged-"


class SnapshotPoint(msgspec.Struct, frozen=True):
    """A position between two records of an attempt, at which a snapshot was taken."""

    job: str
    attempt: str
    position: int

    def is_before(self, other: SnapshotPoint) -> bool:
        """Return whether this point is earlier in the same job; False for two jobs."""
        return self.job == other.job and self._order < other._order

    @property
    def _order(self) -> tuple[int, str, int]:
        # Attempts are numbered: a10 comes after a9.
        return len(self.attempt), self.attempt, self.position

    def __str__(self) -> str:
        return f"record {self.position} of attempt {self.attempt}"


class AcknowledgementMark:
    """A durable file in the source's directory, written before any acknowledgement is sent.

    Each attempt has a file of its own, and the latest point of all files counts: a driver that was
    suspended while its successor continued cannot move the mark back.
    """

    def __init__(self, directory: Path, attempt: str) -> None:
        self._directory = directory
        self._attempt = attempt

    def read(self) -> SnapshotPoint | None:
        """Return the latest point that any attempt has stored; None if there is none."""
        latest: SnapshotPoint | None = None
        # Versions that had one file for all attempts wrote acknowledged.json.
        for path in [self._directory / "acknowledged.json", *self._marks().values()]:
            try:
                point = msgspec.json.decode(path.read_bytes(), type=SnapshotPoint)
            except FileNotFoundError:
                continue
            if latest is None or not point.is_before(latest):
                latest = point
        return latest

    def write(self, point: SnapshotPoint) -> None:
        """Store that everything before a point may be acknowledged from now on."""
        current = self.read()
        if current is not None and point.is_before(current):
            return
        make_directory(self._directory)
        replace_file(self._directory / f"{_PREFIX}{self._attempt}.json", msgspec.json.encode(point))
        for attempt, path in self._marks().items():
            if attempt != self._attempt and is_no_later(attempt, self._attempt):
                path.unlink(missing_ok=True)

    def _marks(self) -> dict[str, Path]:
        found = self._directory.glob(f"{_PREFIX}*.json")
        return {path.stem.removeprefix(_PREFIX): path for path in found}
