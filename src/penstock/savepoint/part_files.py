"""Puts the files of a task attempt into a savepoint, in a directory or in a store."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path, PurePosixPath

from penstock.common.storage_url import Location, StorageUrl
from penstock.savepoint.layout import staged_name, stored_name
from penstock.state.files import sync_files
from penstock.storage.contract import pieces_of
from penstock.storage.storages import storage_at
from penstock.storage.verified_files import temporary_directory, verify


class PartFiles(ABC):
    """The files that a task attempt adds to a savepoint, one after another."""

    @abstractmethod
    def begin(self, directory: PurePosixPath) -> Path:
        """Return where to write the file for a directory of the savepoint."""

    @abstractmethod
    def put(self, size: int, crc: int) -> str:
        """Put the file, which is written and synced, into the savepoint; return its path there.

        Raises:
            CorruptStateError: it does not read back as it was written.
        """

    @abstractmethod
    def complete(self) -> None:
        """Make all files survive a loss of power."""

    @abstractmethod
    def abort(self) -> None:
        """Remove all files again, as far as possible."""


def part_files(savepoint: Location, subtask: int, name: str, scratch: Path | None) -> PartFiles:
    """Return how a task attempt puts files into a savepoint.

    ``scratch`` is a local directory for what is not uploaded yet, by default the system's.
    """
    if isinstance(savepoint, StorageUrl):
        return _StoredParts(savepoint, stored_name(subtask, name), scratch)
    return _LocalParts(savepoint, staged_name(subtask, name))


class _LocalParts(PartFiles):
    """Writes files in their directories, under hidden names; the driver reads them back."""

    def __init__(self, savepoint: Path, name: str) -> None:
        self._savepoint = savepoint
        self._name = name
        self._begun: list[Path] = []

    def begin(self, directory: PurePosixPath) -> Path:
        place = self._savepoint / directory
        place.mkdir(parents=True, exist_ok=True)
        self._begun.append(place / self._name)
        return self._begun[-1]

    def put(self, size: int, crc: int) -> str:
        return self._begun[-1].relative_to(self._savepoint).as_posix()

    def complete(self) -> None:
        directories = {path.parent for path in self._begun}
        sync_files([*directories, *{path.parent for path in directories}])

    def abort(self) -> None:
        for path in self._begun:
            with contextlib.suppress(OSError):
                path.unlink()


class _StoredParts(PartFiles):
    """Writes each file on this host, uploads it, and reads it back here, not on the driver."""

    def __init__(self, savepoint: StorageUrl, name: str, scratch: Path | None) -> None:
        self._storage = storage_at(savepoint)
        self._name = name
        self._scratch = contextlib.ExitStack()
        self._written = self._scratch.enter_context(temporary_directory(scratch)) / name
        self._begun: list[str] = []

    def begin(self, directory: PurePosixPath) -> Path:
        self._begun.append(str(directory / self._name))
        return self._written

    def put(self, size: int, crc: int) -> str:
        path = self._begun[-1]
        self._storage.write(path, pieces_of(self._written))
        self._written.unlink()
        verify(self._storage, path, size, crc)
        return path

    def complete(self) -> None:
        self._scratch.close()

    def abort(self) -> None:
        self._scratch.close()
        # What stays is deleted with the savepoint, and when another attempt has succeeded.
        with contextlib.suppress(OSError):
            self._storage.delete_all(self._begun)
