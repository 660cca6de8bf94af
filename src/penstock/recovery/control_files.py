"""The files in a job's `control` directory, which any of its users may write.

Only small regular files are read: a link could lead anywhere, a pipe would block the reader. What
cannot be used is moved into a subdirectory, so that it is looked at once.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from penstock.common.storage_url import Location
from penstock.storage.contract import PIECE_BYTES, Storage
from penstock.storage.local_storage import LocalStorage
from penstock.storage.storages import storage_at

QUARANTINE = "quarantine"
_QUARANTINED_KEPT = 16


class UnusableFileError(Exception):
    """A file that cannot be a request or an answer, or cannot be read; the message says why."""


class ControlFiles(ABC):
    """The files directly in one directory, by name."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._ignored: set[str] = set()
        """Unusable files that could not be moved away."""

    def names(self) -> list[str]:
        """Return all names, sorted, without those that are ignored."""
        found = self._storage.children("")
        self._ignored.intersection_update(found)
        return [name for name in found if name not in self._ignored]

    @abstractmethod
    def read(self, name: str, longest: int) -> bytes:
        """Return the content of a file of at most `longest` bytes.

        Raises:
            FileNotFoundError: if it does not exist.
            UnusableFileError: if it cannot be read, is too large, or no regular file.
        """

    @abstractmethod
    def quarantine(self, name: str) -> None:
        """Move a file away, or ignore it from now on if that is impossible."""


def control_files(directory: Location) -> ControlFiles:
    """Return the files in a job's `control` directory."""
    if isinstance(directory, Path):
        return _LocalControlFiles(directory)
    return _StoredControlFiles(storage_at(directory))


class _LocalControlFiles(ControlFiles):
    """In a directory, where other users may have put anything."""

    def __init__(self, directory: Path) -> None:
        super().__init__(LocalStorage(directory))
        self._directory = directory

    def read(self, name: str, longest: int) -> bytes:
        try:
            file = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                _check(os.fstat(file), longest)
                with open(file, "rb", closefd=False) as opened:
                    return opened.read(longest)
            finally:
                os.close(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnusableFileError(error.strerror or str(error)) from error

    def quarantine(self, name: str) -> None:
        away = self._directory / QUARANTINE
        try:
            if away.is_symlink():
                message = "it leads elsewhere"
                raise OSError(message)
            away.mkdir(exist_ok=True)
            (self._directory / name).rename(away / name)
        except FileNotFoundError:
            return
        except OSError:
            self._ignored.add(name)
            return
        with suppress(OSError):
            _delete_oldest(list(away.iterdir()))


class _StoredControlFiles(ControlFiles):
    """In a store, where everything is a file."""

    def read(self, name: str, longest: int) -> bytes:
        try:
            found = self._storage.stat(name)
            if found is None:
                raise FileNotFoundError(self._storage.location(name))
            _check_size(found.size, longest)
            return self._storage.read(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnusableFileError(error.strerror or str(error)) from error

    def quarantine(self, name: str) -> None:
        try:
            # The beginning shows what it is: it may be larger than any request.
            content = b"".join(self._storage.stream(name, length=PIECE_BYTES))
            self._storage.replace(f"{QUARANTINE}/{name}", content)
            self._storage.delete(name)
        except FileNotFoundError:
            return
        except OSError:
            self._ignored.add(name)
            return
        with suppress(OSError):
            kept = self._storage.list(QUARANTINE)
            self._storage.delete_all(kept[: max(0, len(kept) - _QUARANTINED_KEPT)])


def _check(facts: os.stat_result, longest: int) -> None:
    if not stat.S_ISREG(facts.st_mode):
        message = "it is not a regular file"
        raise UnusableFileError(message)
    _check_size(facts.st_size, longest)


def _check_size(size: int, longest: int) -> None:
    if size > longest:
        message = f"it has {size:,} bytes, more than {longest:,}"
        raise UnusableFileError(message)


def _delete_oldest(files: Collection[Path]) -> None:
    # Names of requests begin with the time.
    for file in sorted(files)[: max(0, len(files) - _QUARANTINED_KEPT)]:
        with suppress(OSError):
            file.unlink()
