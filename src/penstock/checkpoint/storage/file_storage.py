"""Stores small files: journal, metadata, requests, the lease.

The contract is small enough for an object store (create = If-None-Match). Tasks write state files
themselves, not through it.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from penstock.common.new_files import naming
from penstock.connectors.staging.durable_files import (
    make_directory,
    rename_if_absent,
    sync_directory,
)

_STAGED = ".staged-"
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems without hard links."""


class Storage(ABC):
    """Whole files by path, relative to the storage's root, with `/` between names.

    A file exists with its whole content or not at all, for every reader and after every crash.
    When `create` or `replace` has returned, the file survives a loss of power. If one of them
    raises anything but FileExistsError, the file may exist or not.
    """

    @abstractmethod
    def create(self, path: str, data: bytes) -> None:
        """Write a file that does not exist; if several try at once, exactly one wins.

        A request that is sent again because its answer was lost finds the file that it has created
        itself. An implementation recognises that by the content, so the content must be unique to
        the writer wherever it matters who wins.

        Raises:
            FileExistsError: if it exists.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Write a file whether it exists or not; a reader sees the old or the new one."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: if it does not exist.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file with this path."""

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted; none if it does not exist."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def delete_tree(self, directory: str) -> None:
        """Delete a directory and its content; may be interrupted and repeated."""

    @abstractmethod
    def location(self, path: str) -> str:
        """Return where a user finds a file, existing or not."""


class LocalStorage(Storage):
    """A directory on this machine, or one that all machines mount.

    A file is written under a hidden name and then linked (create) or renamed (replace). Without
    hard links, create renames it only if the name is free. Hidden files that a killed process has
    left are never listed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, path: str, data: bytes) -> None:
        """See `Storage.create`."""
        target = self._at(path)
        if target.exists():
            raise FileExistsError(target)
        with self._staged(target, data) as staged:
            try:
                _name_if_absent(staged, target)
            except (FileExistsError, FileNotFoundError):
                # NFS and FUSE may send a request twice: then the first one has created the file.
                if not _has_content(target, data):
                    raise
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

    def location(self, path: str) -> str:
        """See `Storage.location`."""
        return str(self._at(path))

    def _at(self, path: str) -> Path:
        names = PurePosixPath(path)
        if names.is_absolute() or ".." in names.parts:
            msg = f"{path!r} is not a path below the storage's root"
            raise ValueError(msg)
        return self.root / names

    @contextmanager
    def _staged(self, target: Path, data: bytes) -> Iterator[Path]:
        make_directory(target.parent)
        staged = target.with_name(f"{_STAGED}{uuid.uuid4().hex}")
        try:
            with naming(target), staged.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield staged
        finally:
            staged.unlink(missing_ok=True)


def _name_if_absent(staged: Path, target: Path) -> None:
    try:
        os.link(staged, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        rename_if_absent(staged, target)


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False
