"""The directory of one step's staged files, with a subdirectory per attempt."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import BinaryIO, Self

from penstock.common.storage_url import StorageUrl
from penstock.connectors.staging.other_jobs import counterpart_place
from penstock.connectors.staging.uploads import Files, fetch_upload, put_uploads
from penstock.errors import UnsafeNameError
from penstock.ids import attempt_number, is_no_later
from penstock.storage.durable_files import sync_files
from penstock.storage.storages import storage_at

_HIDDEN = ".staging-"
_SYNCED_LEVELS = 4
"""An attempt's directory and the three above it: tasks may have created each of them."""


@dataclass(frozen=True, slots=True)
class StagingDirectory:
    """The staged files of one step, as seen by one attempt.

    The root stays the same after a restart, so that a new attempt finds what an older one left.
    Files are named relative to the root, because a job's directory may be moved.

    With a store the root is only this driver's copy. What a checkpoint names is put into the store
    before, joined to one *upload* for each committable; an attempt on another driver fetches it.
    """

    root: Path
    attempt: str
    old_root: Path | None = None
    """Where older versions staged the files of this step, possibly with those of other jobs."""
    store: StorageUrl | None = None
    """The root's durable counterpart, None if the root itself is durable."""
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """How to reach the store of another job, for a root that is in none."""

    @classmethod
    def hidden_in(
        cls,
        base_path: Path,
        job: str,
        step: str,
        attempt: str,
        store: StorageUrl | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Self:
        """Return a hidden staging directory of a step below a directory that belongs to the job."""
        names = f"{_HIDDEN}{job}/{step}"
        durable = None if store is None else store / names
        return cls(base_path / names, attempt, store=durable, options=options or {})

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
        return cls(base_path / hidden_name(job, job_instance) / step, attempt, old.root)

    @property
    def place(self) -> str:
        """Where the files of checkpoints are, as committables name it."""
        return str(self.store or self.root)

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

    def make_durable(self, uploads: Mapping[str, Files]) -> None:
        """Make files survive the driver, and a power loss.

        They are given by upload, which is what a store gets: the content of these files, one after
        the other. May be called again with the same content. An upload is named like a file,
        relative to the root, after the attempt that makes it.

        Raises:
            LostStagedFileError: a file does not have its size.
        """
        if self.store is None:
            self.sync(path for files in uploads.values() for path, _ in files)
        else:
            put_uploads(storage_at(self.store), uploads)

    def fetch(self, upload: str, files: Files) -> None:
        """Bring the files of an upload back if they are not here.

        Raises:
            LostStagedFileError: the store does not have them in full, either.
        """
        if self.store is not None and any(not _is_here(path, size) for path, size in files):
            fetch_upload(storage_at(self.store), upload, files)

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

    def of_other_job(self, place: str) -> StagingDirectory:
        """Return this step's staging directory in another job, which a snapshot names.

        Raises:
            UnsafeNameError: it is not the directory of this step.
        """
        found = counterpart_place(self.store or self.root, place, 1, self.options)
        if isinstance(found, Path):
            return StagingDirectory(found, self.attempt)
        # What is fetched goes with the files of this attempt.
        copies = self.path(f"of-{hashlib.sha256(str(found).encode()).hexdigest()[:32]}")
        return StagingDirectory(copies, self.attempt, store=found)

    def remove(self, paths: Iterable[Path], uploads: Iterable[str] = ()) -> None:
        """Remove files and uploads of this step that no snapshot needs.

        What fails now is left to `sweep`.
        """
        for path in paths:
            if self.owns(path):
                with contextlib.suppress(OSError):
                    path.unlink()
        if self.store is not None:
            with contextlib.suppress(OSError):
                storage_at(self.store).delete_all(uploads)

    def sweep(self, keep: Collection[Path], uploads: Collection[str] = ()) -> None:
        """Remove files and uploads of this and older attempts except some; and empty directories.

        Those of later attempts stay: another driver may have taken over since this one read the
        journal.
        """
        kept = {str(path) for path in keep}
        for place in self.root.glob("*"):
            if is_no_later(place.name, self.attempt):
                _sweep(place, kept)
        _remove_if_empty(self.root)
        if self.root.parent.name.startswith(_HIDDEN):
            _remove_if_empty(self.root.parent)
        if self.store is not None:
            storage = storage_at(self.store)
            old = (n for n in storage.list("") if is_no_later(n.partition("/")[0], self.attempt))
            storage.delete_all([name for name in old if name not in uploads])


def hidden_name(job: str, job_instance: str) -> str:
    """Return the name of the hidden directory of a job, below a path that others may share."""
    return f"{_HIDDEN}{job}-{job_instance}" if job_instance else f"{_HIDDEN}{job}"


def is_hidden(relative: PurePath) -> bool:
    """Whether a path, relative to a sink's path, is in the hidden directory of a job."""
    return relative.parts[:1] != () and relative.parts[0].startswith(_HIDDEN)


def _is_here(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size


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
