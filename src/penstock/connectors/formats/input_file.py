"""A file that a task reads, and what identifies it."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

from penstock.common.config.locations import STORE_SCHEMES, parse_location, scheme_of
from penstock.common.storage_url import Location, StorageUrl
from penstock.connectors.contracts.input_settings import DEFAULT_INPUT_SETTINGS, InputSettings
from penstock.connectors.formats.stored_input import StoredInput, stored_file
from penstock.errors import ChangedFileError
from penstock.storage.contract import StoredFile

_TIME_UNITS_NS = (1, 1_000, 1_000_000_000)
"""Tools and file systems keep modification times with one of these precisions."""


_BUFFER_BYTES = 64 << 10
_Buffered: TypeAlias = "io.BufferedReader[Any]"


class FileIdentity(NamedTuple):
    """What distinguishes the content of a file from any other, without reading it.

    Two changes within the resolution of the file system's clock, a few milliseconds, that keep the
    size cannot be told apart.
    """

    inode: int
    size: int
    mtime_ns: int

    @staticmethod
    def of(stat: os.stat_result) -> FileIdentity:
        """Return the identity of a file."""
        return FileIdentity(stat.st_ino, stat.st_size, stat.st_mtime_ns)

    @staticmethod
    def of_stored(file: StoredFile) -> FileIdentity:
        """Return the identity of a file in a store, with a digest of its version as inode."""
        version = file.version.removeprefix("W/").strip('"')
        if not version:
            return FileIdentity(0, file.size, round(file.modified * 1000) * 1_000_000)
        digest = blake2b(version.encode(), digest_size=8).digest()
        # Listings and other answers may have times of different precision.
        seconds = int(file.modified)
        return FileIdentity(int.from_bytes(digest) >> 1, file.size, seconds * 1_000_000_000)

    def difference(self, found: FileIdentity) -> str:
        """Say how a file differs that should have this identity; empty if it does not."""
        if found.size != self.size:
            return f"it had {self.size} bytes and has {found.size}"
        if found.mtime_ns != self.mtime_ns:
            return "it was written again, its modification time is another"
        return "another file has its name" if found.inode != self.inode else ""

    def difference_of_copy(self, found: FileIdentity) -> str:
        """Say the same of a file that may be a copy, with a modification time less exact."""
        times = {self.mtime_ns - self.mtime_ns % unit for unit in _TIME_UNITS_NS}
        is_same_time = found.mtime_ns in times
        mtime_ns = found.mtime_ns if is_same_time else self.mtime_ns
        return FileIdentity(found.inode, self.size, mtime_ns).difference(found)


class InputFile:
    """An open file, with the limits for reading it.

    It is opened once, so that all reads see the same file, whatever its name is given to meanwhile.
    With an ``identity``, opening and :meth:`verify` raise `ChangedFileError` if it has another one.
    """

    def __init__(
        self,
        path: Location,
        identity: FileIdentity | None = None,
        settings: InputSettings = DEFAULT_INPUT_SETTINGS,
    ) -> None:
        self.path = path
        self.settings = settings
        self._identity = identity
        self.buffered, self._stored = _opened(path)
        try:
            self._compare(self._found() if self._stored is None else self._stored)
        except BaseException:
            self.buffered.close()
            raise

    @property
    def raw(self) -> BinaryIO:
        """The file without a buffer, for reads of large blocks."""
        return cast(BinaryIO, self.buffered.raw)

    @property
    def size(self) -> int:
        """Its size now; in a store, when it was opened."""
        if self._stored is not None:
            return self._stored.size
        return os.fstat(self.buffered.fileno()).st_size

    def verify(self) -> None:
        """Check that it is still the file that was planned."""
        if self._identity is not None:
            self._compare(self._found())

    def check_length(self, end: int) -> None:
        """Check that it does not end before a planned range."""
        if self.size < end:
            change = f"it has {self.size} bytes, and {end} were to be read"
            raise ChangedFileError(str(self.path), change)

    @contextmanager
    def changes_first(self) -> Iterator[None]:
        """Report a change of the file rather than an error that it may have caused."""
        try:
            yield
        except Exception:
            self.verify()
            raise

    def _compare(self, found: FileIdentity) -> None:
        if self._identity is not None and (change := self._identity.difference(found)):
            raise ChangedFileError(str(self.path), change)

    def _found(self) -> FileIdentity:
        if not isinstance(self.path, StorageUrl):
            return FileIdentity.of(os.fstat(self.buffered.fileno()))
        found = stored_file(self.path)
        if found is None:
            raise ChangedFileError(str(self.path), "it is gone")
        return FileIdentity.of_stored(found)

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.buffered.close()


def input_place(split: str, options: Mapping[str, str]) -> Location:
    """Return the place that the id of a split names: an absolute path, or a URL."""
    return parse_location(split, options) if scheme_of(split) in STORE_SCHEMES else Path(split)


def _opened(path: Location) -> tuple[_Buffered, FileIdentity | None]:
    """Open a file; if it is in a store, return what identifies it there."""
    if isinstance(path, Path):
        return path.open("rb"), None
    found = stored_file(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
    opened: _Buffered = io.BufferedReader(StoredInput(path, found.size), _BUFFER_BYTES)
    return opened, FileIdentity.of_stored(found)
