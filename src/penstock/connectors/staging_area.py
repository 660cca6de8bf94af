"""The hidden directory of a file sink: where it is, and what is cleared away there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from penstock.connectors.durable import sync_directory
from penstock.ids import is_no_later

__all__ = ["StagingArea"]


@dataclass(frozen=True, slots=True)
class StagingArea:
    """What one step of one job keeps below a sink's path, in a directory per attempt.

    The names stay the same after a restart, so that a new attempt finds what an old one left.
    """

    base_path: Path
    job: str
    step: str
    attempt: str
    """Who looks at it."""

    @property
    def root(self) -> Path:
        """Everything unfinished of the step lies below."""
        return self.base_path / f".staging-{self.job}" / self.step

    def of_attempt(self, attempt: str) -> Path:
        """Return the directory of an attempt; made by whoever writes into it."""
        return self.root / attempt

    def piece(self, attempt: str, name: str, number: int) -> Path:
        """Name a file that a task attempt writes."""
        return self.of_attempt(attempt) / f"{name}-{number}.piece"

    def pending(self, attempt: str, final: Path) -> Path:
        """Name a file while it waits for its commit; final names are unique across buckets."""
        return self.of_attempt(attempt) / f"{final.name}.pending"

    def sync(self, attempt: str) -> None:
        """Make the names in an attempt's directory durable, and its own."""
        for directory in (self.of_attempt(attempt), self.root, self.root.parent, self.base_path):
            sync_directory(directory)

    def sweep(self, keep: Collection[Path]) -> None:
        """Remove what this attempt and older ones left but some files, and empty directories.

        What a later attempt stages stays: this one may have been taken over since it learned
        what to keep.
        """
        kept = {str(path) for path in keep}
        for place in self.root.glob("*"):
            if is_no_later(place.name, self.attempt):
                _sweep(place, kept)
        _remove_if_empty(self.root)
        _remove_if_empty(self.root.parent)


def _sweep(place: Path, kept: Collection[str]) -> None:
    for directory, _, names in os.walk(place, topdown=False):
        for name in names:
            path = Path(directory, name)
            if str(path) not in kept:
                path.unlink(missing_ok=True)
        _remove_if_empty(Path(directory))


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()
