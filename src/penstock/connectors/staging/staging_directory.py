"""The directory of one step's staged files, with a subdirectory per attempt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO, Self

from penstock.common.contained_paths import counterpart
from penstock.errors import UnsafeNameError
from penstock.ids import attempt_number, is_no_later
from penstock.storage.durable_files import sync_files

_HIDDEN = ".staging-"
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
    old_root: Path | None = None
    """Where older versions staged the files of this step, possibly with those of other jobs."""

    @classmethod
    def hidden_in(cls, base_path: Path, job: str, step: str, attempt: str) -> Self:
        """Return a hidden staging directory of a step below a directory that belongs to the job."""
        return cls(base_path / f"{_HIDDEN}{job}" / step, attempt)

    @classmethod
    def shared_path(
        cls, base_path: Path, job: str, job_instance: str, step: str, attempt: str
    ) -> Self:
        """Return the hidden staging directory of a step below a path that other jobs may share.

        It is named after the job instance, because another job may have the same id.
        """
        old = cls.hidden_in(base_path, job, step, attempt)
        if not job_instance:
            return old
        return cls(base_path / f"{_HIDDEN}{job}-{job_instance}" / step, attempt, old.root)

    def path(self, name: str) -> Path:
        """Return the path of a file of this attempt."""
        return self.root / self.attempt / name

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """Create a new file of this attempt, and return its name relative to the root."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path.relative_to(self.root)), path.open("xb")

    def remove_staged(self, prefix: str) -> None:
        """Remove the files of this attempt whose names begin with a prefix, as far as possible."""
        for path in (self.root / self.attempt).glob(f"{prefix}*"):
            with contextlib.suppress(OSError):
                path.unlink()

    def sync(self, paths: Iterable[Path]) -> None:
        """Make files and their names survive a power loss."""
        sync_files(paths, _SYNCED_LEVELS)

    def owns(self, path: Path) -> bool:
        """Whether this step wrote a file; if not, it belongs to another job's checkpoint.

        Of a file that an older version staged this is known only if a snapshot of this job names
        it: never ask about a file that was found by listing a directory.
        """
        roots = [self.root] if self.old_root is None else [self.root, self.old_root]
        return any(
            path.is_relative_to(root) and ".." not in path.relative_to(root).parts for root in roots
        )

    def staged_file(self, name: str) -> tuple[Path, Path]:
        """Return the path of a staged file that a snapshot names, and of the sink that staged it.

        Both may be another job's, and the sink may have had another path when the snapshot was
        taken. But the file is where a sink of this step stages files, below its path.

        Raises:
            UnsafeNameError: it is not.
        """
        path = Path(name)
        hidden, step, attempt, file = path.parts[-4:] if len(path.parts) > 4 else ("",) * 4
        is_staged = hidden.startswith(_HIDDEN) and attempt_number(attempt) is not None
        # A sink's path itself may have dots: it is the user's.
        is_named = step == self.root.name and file != ".." and "\0" not in name
        if not (is_staged and is_named and path.is_absolute()):
            raise UnsafeNameError(name, f"{_HIDDEN}*/{self.root.name}/a*")
        return path, path.parents[3]

    def of_other_job(self, root: str) -> Path:
        """Return the root of this step's staged files in another job, which a snapshot names.

        Raises:
            UnsafeNameError: it is not the directory of this step.
        """
        return counterpart(self.root, root, levels=1)

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
        if self.root.parent.name.startswith(_HIDDEN):
            _remove_if_empty(self.root.parent)


def is_hidden(relative: PurePath) -> bool:
    """Whether a path, relative to a sink's path, is in the hidden directory of a job."""
    return relative.parts[:1] != () and relative.parts[0].startswith(_HIDDEN)


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
