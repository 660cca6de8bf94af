"""A file that a task reads, and what identifies it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, cast

from penstock.connectors.contracts.input_settings import DEFAULT_INPUT_SETTINGS, InputSettings
from penstock.errors import ChangedFileError

_TIME_UNITS_NS = (1, 1_000, 1_000_000_000)
"""Tools and file systems keep modification times with one of these precisions."""


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
        path: Path,
        identity: FileIdentity | None = None,
        settings: InputSettings = DEFAULT_INPUT_SETTINGS,
    ) -> None:
        self.path = path
        self.settings = settings
        self._identity = identity
        self.buffered = path.open("rb")
        try:
            self.verify()
        except BaseException:
            self.buffered.close()
            raise

    @property
    def raw(self) -> BinaryIO:
        """The file without a buffer, for reads of large blocks."""
        return cast(BinaryIO, self.buffered.raw)

    @property
    def size(self) -> int:
        """Its size now."""
        return os.fstat(self.buffered.fileno()).st_size

    def verify(self) -> None:
        """Check that it is still the file that was planned."""
        if self._identity is None:
            return
        found = FileIdentity.of(os.fstat(self.buffered.fileno()))
        if change := self._identity.difference(found):
            raise ChangedFileError(str(self.path), change)

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

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.buffered.close()
