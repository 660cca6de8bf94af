"""The contract of storages: whole files by path, in a directory or in a store.

Everything that a job must find again is kept through it: journal, metadata, requests, the lease,
history, and in stores the files of state, savepoints and sinks, too. It needs no rename, no hard
link and no append.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from penstock.common.storage_url import Location

PIECE_BYTES = 1 << 20
"""How much of a file is read at a time."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as a listing shows it."""

    path: str
    """Relative to the storage's root."""
    size: int
    modified: float
    """When it was written, by the clock of the storage, in seconds since 1970."""
    version: str = ""
    """Another one for every content, if the storage has such marks (ETag); else empty."""


class Storage(ABC):
    """Whole files by path, relative to the storage's root, with `/` between names.

    A file exists with its whole content or not at all, for every reader and after every crash.
    When `create`, `replace` or `write` has returned, the file survives a loss of power, and every
    reader and every listing sees it. If one of them raises anything but FileExistsError, the file
    may exist or not. Any thread may call. A storage must not be used on both sides of a fork.

    Requests that fail for a passing reason are repeated for a limited time. What does not succeed
    raises an OSError that names the file.
    """

    @property
    @abstractmethod
    def root(self) -> Location:
        """Where the files are."""

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
    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write a large file, holding a few pieces in memory.

        For names that are used once, or always for the same content: it replaces what is there. If
        `pieces` raises, nothing is written. A killed process may leave an unfinished upload, which
        no listing shows; `delete_unfinished` removes it.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: if it does not exist.
        """

    @abstractmethod
    def stream(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return a file's content, or a part of it, in pieces; a file that is too short ends.

        Raises:
            FileNotFoundError: if it does not exist, at the latest with the first piece.
        """

    @abstractmethod
    def stat(self, path: str) -> StoredFile | None:
        """Return what is known of a file, None if it does not exist."""

    @abstractmethod
    def entries(self, directory: str) -> list[StoredFile]:
        """Return all files below a directory, sorted by path; none if it does not exist."""

    @abstractmethod
    def children(self, directory: str) -> list[str]:
        """Return the names of the files and directories directly in a directory, sorted.

        A store has no empty directories: what has no files is not listed there.
        """

    @abstractmethod
    def give_name(self, path: str, name: str) -> None:
        """Let a complete file appear under another path, never in place of another file.

        The file may keep its old path, too. A request that is sent again because its answer was
        lost may find either what it has done itself, or that the old path is gone.

        Raises:
            FileExistsError: there is a file of this name.
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files as far as they exist, with few requests; may be interrupted and repeated."""

    @abstractmethod
    def delete_tree(self, directory: str) -> None:
        """Delete a directory and its content; may be interrupted and repeated."""

    def delete_unfinished(  # noqa: B027
        self, directory: str, which: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Remove what killed processes left of uploads below a directory, where that is possible.

        ``which`` decides by the path that the file would have. No process may be uploading one of
        these.
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file with this path."""
        return self.stat(path) is not None

    def list(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted; none if it does not exist."""
        return [entry.path for entry in self.entries(directory)]

    def open(self, path: str, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open a file, or a part of it, for reading from its beginning to its end.

        Raises:
            FileNotFoundError: if it does not exist, at the latest with the first read.
        """
        pieces = _Pieces(self.stream(path, start, length))
        return cast(BinaryIO, io.BufferedReader(pieces, PIECE_BYTES))

    def location(self, path: str) -> str:
        """Return where a user finds a file, existing or not."""
        return str(self.root / path)


def relative_names(path: str) -> PurePosixPath:
    """Return a path relative to a storage's root as names.

    Raises:
        ValueError: it leads out of the root.
    """
    names = PurePosixPath(path)
    if names.is_absolute() or ".." in names.parts:
        message = f"{path!r} is not a path below the storage's root"
        raise ValueError(message)
    return names


def pieces_of(path: Path) -> Iterator[bytes]:
    """Return the content of a local file in pieces."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


class _Pieces(io.RawIOBase):
    """A file that is read from an iterator."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        self._rest, self._pieces = memoryview(b""), iter(())
        super().close()
