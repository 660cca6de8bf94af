"""Up to which cut a broker was told to forget: going back behind it would lose records."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.connectors.durable import make_directory, sync_directory, sync_file

__all__ = ["AcknowledgementMark", "Cut"]


class Cut(msgspec.Struct, frozen=True):
    """A place between two records of a job's attempt."""

    job: str
    attempt: str
    position: int

    def is_before(self, other: Cut) -> bool:
        """Whether this cut of the same job lies before another one; no for those of two jobs."""
        return self.job == other.job and self._order < other._order

    @property
    def _order(self) -> tuple[int, str, int]:
        # Attempts are counted: a10 comes behind a9.
        return len(self.attempt), self.attempt, self.position

    def __str__(self) -> str:
        return f"record {self.position} of attempt {self.attempt}"


class AcknowledgementMark:
    """A durable note in the source's directory, written before the first acknowledgement."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "acknowledged.json"

    def read(self) -> Cut | None:
        """Return the last cut that was written, if any."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Cut)
        except FileNotFoundError:
            return None

    def write(self, cut: Cut) -> None:
        """Note that everything before a cut may be acknowledged from now on.

        A mark is never moved back: a driver may have slept while its successor went on.
        """
        there = self.read()
        if there is not None and cut.is_before(there):
            return
        make_directory(self._path.parent)
        new = self._path.with_suffix(f".{cut.attempt}-new")
        new.write_bytes(msgspec.json.encode(cut))
        sync_file(new)
        new.replace(self._path)
        sync_directory(self._path.parent)
