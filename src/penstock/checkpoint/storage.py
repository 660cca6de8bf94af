"""Where small files that decide things lie: the journal, metadata, requests, the lease.

The contract is small enough for an object store (create = If-None-Match). State files are not
written through it; tasks write those themselves.
"""

from __future__ import annotations

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from penstock.connectors.durable import sync_directory

__all__ = ["LocalStorage", "Storage"]

_STAGED = ".staged-"


class Storage(ABC):
    """Whole files by path; paths are relative to the storage's root, with `/` between names.

    A file is there with all of its content or not at all, for every reader and after every crash.
    When `create` or `replace` has returned, the file survives a loss of power. If one of them
    raises anything but FileExistsError, the file may or may not be there.
    """

    @abstractmethod
    def create(self, path: str, data: bytes) -> None:
        """Write a file that is not there yet; of all who try at once, exactly one wins.

        Raises:
            FileExistsError: if it is there.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Write a file, whether it is there or not; a reader sees the old or the new one."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: if it is not there.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file of this path."""

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted; none if it is not there."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""

    @abstractmethod
    def delete_tree(self, directory: str) -> None:
        """Delete a directory with all that is in it; cut off, it may be called again."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return how many bytes a file has.

        Raises:
            FileNotFoundError: if it is not there.
        """

    @abstractmethod
    def where(self, path: str) -> str:
        """Return how a user finds a file, there or not."""


class LocalStorage(Storage):
    """A directory of this machine, or one that all machines mount.

    A file is written under a hidden name and then linked (create) or renamed (replace) to its own.
    What a killed process leaves under hidden names is never listed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, path: str, data: bytes) -> None:
        """See `Storage.create`."""
        target = self._at(path)
        if target.exists():
            raise FileExistsError(target)
        with self._staged(target, data) as staged:
            os.link(staged, target)
        sync_directory(target.parent)

    def replace(self, path: str, data: bytes) -> None:
        """See `Storage.replace`."""
        target = self._at(path)
        with self._staged(target, data) as staged:
            staged.replace(target)
        sync_directory(target.parent)

    def read(self, path: str) -> bytes:
        """See `Storage.read`."""
        return self._at(path).read_bytes()

    def exists(self, path: str) -> bool:
        """See `Storage.exists`."""
        return self._at(path).is_file()

    def list(self, directory: str) -> list[str]:
        """See `Storage.list`."""
        found = []
        for place, _, names in os.walk(self._at(directory)):
            below = Path(place).relative_to(self.root)
            found += [(below / name).as_posix() for name in names if not name.startswith(_STAGED)]
        return sorted(found)

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        self._at(path).unlink(missing_ok=True)

    def delete_tree(self, directory: str) -> None:
        """See `Storage.delete_tree`."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(directory))

    def size(self, path: str) -> int:
        """See `Storage.size`."""
        return self._at(path).stat().st_size

    def where(self, path: str) -> str:
        """See `Storage.where`."""
        return str(self._at(path))

    def _at(self, path: str) -> Path:
        names = PurePosixPath(path)
        if names.is_absolute() or ".." in names.parts:
            msg = f"not a path below the storage's root: {path!r}"
            raise ValueError(msg)
        return self.root / names

    @contextmanager
    def _staged(self, target: Path, data: bytes) -> Iterator[Path]:
        _make_directory(target.parent)
        staged = target.with_name(f"{_STAGED}{uuid.uuid4().hex}")
        try:
            with staged.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield staged
        finally:
            staged.unlink(missing_ok=True)


def _make_directory(directory: Path) -> None:
    """Make a directory and those above it, so that they survive a loss of power too."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)
