"""Stores durably up to which snapshot point messages may have been acknowledged.

Restoring an earlier snapshot would lose records: the broker no longer delivers them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.connectors.staging.durable_files import make_directory, sync_directory, write_file


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
    """A durable file in the source's directory, written before any acknowledgement is sent."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "acknowledged.json"

    def read(self) -> SnapshotPoint | None:
        """Return the stored point; None if there is none."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=SnapshotPoint)
        except FileNotFoundError:
            return None

    def write(self, point: SnapshotPoint) -> None:
        """Store that everything before a point may be acknowledged from now on.

        The mark never moves back: a driver may have been suspended while its successor continued.
        """
        current = self.read()
        if current is not None and point.is_before(current):
            return
        make_directory(self._path.parent)
        # A name per attempt: a suspended driver may write at the same time.
        new = self._path.with_suffix(f".{point.attempt}-new")
        write_file(new, msgspec.json.encode(point), "wb")
        new.replace(self._path)
        sync_directory(self._path.parent)
