"""The directory of one step's staged files, with a subdirectory per attempt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from penstock.connectors.staging.durable_files import sync_files
from penstock.ids import is_no_later

_SYNCED_LEVELS = 4
"""An attempt's directory and the three above it: tasks may have created each of them."""


@dataclass(frozen=True, slots=True)
class StagingDirectory:
    """The staged files of one step, as seen by one attempt.

    The root stays the same after a restart, so that a new attempt finds what an older one left.
    Files are named relative to the root, because a job's directory may be moved.
    """

    root: Path
    attempt: str

    @classmethod
    def hidden_in(cls, base_path: Path, job: str, step: str, attempt: str) -> Self:
        """Return the hidden staging directory of a step below the path that its sink writes to."""
        return cls(base_path / f".staging-{job}" / step, attempt)

    def path(self, name: str) -> Path:
        """Return the path of a file of this attempt."""
        return self.root / self.attempt / name

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """Create a new file of this attempt, and return its name relative to the root."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path.relative_to(self.root)), path.open("xb")

    def sync(self, paths: Iterable[Path]) -> None:
        """Make files and their names survive a power loss."""
        sync_files(paths, _SYNCED_LEVELS)

    def owns(self, path: Path) -> bool:
        """Whether this step wrote a file; if not, it belongs to another job's checkpoint."""
        return path.is_relative_to(self.root)

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files of this step that no snapshot needs; what fails now is left to `sweep`."""
        for path in paths:
            if self.owns(path):
                with contextlib.suppress(OSError):
                    path.unlink()

    def sweep(self, keep: Collection[Path]) -> None:
        """Remove the files of this and older attempts except some, and empty directories.

        Files of later attempts stay: another driver may have taken over since this one read the
        journal.
        """
        kept = {str(path) for path in keep}
        for place in self.root.glob("*"):
            if is_no_later(place.name, self.attempt):
                _sweep(place, kept)
        _remove_if_empty(self.root)
        if self.root.parent.name.startswith(".staging-"):
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
