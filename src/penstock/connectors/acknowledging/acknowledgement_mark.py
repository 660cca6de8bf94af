"""Stores durably up to which snapshot point messages may have been acknowledged.

Restoring an earlier snapshot would lose records: the broker no longer delivers them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.common.storage_url import Location
from penstock.ids import is_no_later
from penstock.storage.storages import storage_at

_PREFIX = "acknowledged-"
_SUFFIX = ".json"
_OLD = "acknowledged.json"
"""Written by versions that had one file for all attempts."""


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
    """A durable file of the source, written before any acknowledgement is sent.

    Each attempt has a file of its own, and the latest point of all files counts: a driver that was
    suspended while its successor continued cannot move the mark back.
    """

    def __init__(self, place: Location, attempt: str) -> None:
        self._storage = storage_at(place)
        self._attempt = attempt

    def read(self) -> SnapshotPoint | None:
        """Return the latest point that any attempt has stored; None if there is none."""
        return self._latest(self._storage.children(""))

    def write(self, point: SnapshotPoint) -> None:
        """Store that everything before a point may be acknowledged from now on."""
        names = self._storage.children("")
        current = self._latest(names)
        if current is not None and point.is_before(current):
            return
        own = f"{_PREFIX}{self._attempt}{_SUFFIX}"
        self._storage.replace(own, msgspec.json.encode(point))
        attempts = {name: _attempt_of(name) for name in names if name != own}
        older = [n for n, attempt in attempts.items() if is_no_later(attempt, self._attempt)]
        if older:
            self._storage.delete_all(older)

    def _latest(self, names: Iterable[str]) -> SnapshotPoint | None:
        latest: SnapshotPoint | None = None
        for name in sorted(names, key=lambda name: name != _OLD):
            if name != _OLD and not _attempt_of(name):
                continue
            try:
                point = msgspec.json.decode(self._storage.read(name), type=SnapshotPoint)
            except FileNotFoundError:
                continue
            if latest is None or not point.is_before(latest):
                latest = point
        return latest


def _attempt_of(name: str) -> str:
    """Return the attempt whose mark has this name, empty if it is no mark."""
    is_mark = name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    return name.removeprefix(_PREFIX).removesuffix(_SUFFIX) if is_mark else ""
