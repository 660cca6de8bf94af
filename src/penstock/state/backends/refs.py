"""References to state: its files, versions and directories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.common.storage_url import StorageUrl
from penstock.state.local_dir import HostDir

T = TypeVar("T")


class StoredAt(msgspec.Struct, frozen=True, array_like=True):
    """Where a state file is in a store: an object, which may hold several files one after another.

    Its name is relative to the place of the subtask's state in the store.
    """

    object: str
    start: int = 0


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state file: its name in the shared directory, the version it leads to, size and CRC-32."""

    name: str
    version: int
    size: int
    crc: int
    stored: StoredAt | None = None
    """Where a checkpoint has put it into a store; None if it is a file in the shared directory."""

    @property
    def stored_name(self) -> str:
        """The name of the file that a checkpoint has: of the object in a store, or its own."""
        return self.name if self.stored is None else self.stored.object


class SstFiles(msgspec.Struct, frozen=True):
    """A base of several immutable RocksDB files, some of them shared with older bases."""

    version: int
    files: tuple[FileRef, ...]


class StateRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a subtask's state, as instructions, manifests and checkpoints refer to it.

    The version is the base (one file, or SST files) plus the deltas in their order, or all of it
    ``inline``. ``StateRef(0)`` is the empty state that a job starts with.
    """

    version: int
    base: FileRef | None = None
    deltas: tuple[FileRef, ...] = ()
    inline: bytes | None = None
    tables: SstFiles | None = None

    @property
    def files(self) -> tuple[FileRef, ...]:
        """All files of this version, base first."""
        base = () if self.base is None else (self.base,)
        tables = () if self.tables is None else self.tables.files
        return (*base, *tables, *self.deltas)

    @property
    def base_version(self) -> int | None:
        """The version of the base, None if there is none."""
        if self.tables is not None:
            return self.tables.version
        return None if self.base is None else self.base.version


class LocalSnapshot(msgspec.Struct, frozen=True):
    """A directory on one host with an immutable copy of a version, until a compaction uses it."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class StateLocation:
    """The directories of one subtask of one operator.

    ``shared_dir`` is the same for all hosts and all attempts of a job: what an older attempt
    published stays in use, and file names tell apart what two attempts write. ``local_dir``
    belongs to a host and to one attempt: a version number means one state only there. ``store`` has
    the files whose refs say that they are stored; then ``shared_dir`` belongs to one attempt, too,
    and to one host if the hosts share no directory.
    """

    shared_dir: Path
    local_dir: Path
    store: StorageUrl | None = None
    is_of_host: bool = False
    """Whether ``shared_dir`` is this host's own."""


@dataclass(frozen=True, slots=True)
class UnresolvedStateLocation:
    """A location as the driver passes it to a task, whose host determines the local directory."""

    files: Path | HostDir
    """Where files are: a directory that all hosts share, or one on each host."""
    local: HostDir
    store: StorageUrl | None = None

    @property
    def shared_dir(self) -> Path:
        """Where files are on the host of the calling process."""
        return self.files if isinstance(self.files, Path) else self.files.resolve()

    @property
    def shared(self) -> StateLocation:
        """The location for operations that use no local store."""
        directory = self.shared_dir
        return self._location(directory, directory)

    def resolve(self) -> StateLocation:
        """Return the location on the host of the calling process, whether it exists or not."""
        return self._location(self.shared_dir, self.local.resolve())

    def use(self, function: Callable[[StateLocation], T]) -> T:
        """Call a function with the location on this host; if that is full, with the next one."""
        files = self.files if isinstance(self.files, Path) else self.files.create()
        return self.local.use(lambda path: function(self._location(files, path)))

    def _location(self, files: Path, local: Path) -> StateLocation:
        return StateLocation(files, local, self.store, isinstance(self.files, HostDir))


def staged_prefix(attempt: str, batch: int, try_: int) -> str:
    """Return how the names of all task attempts of a try begin."""
    return f"{attempt}-b{batch}-t{try_}-"


@dataclass(frozen=True, slots=True)
class StagedName:
    """The part of a staged file's name that is unique to a task attempt of a job."""

    attempt: str
    batch: int
    try_: int
    subtask: int
    task_attempt: int

    def __str__(self) -> str:
        prefix = staged_prefix(self.attempt, self.batch, self.try_)
        return f"{prefix}s{self.subtask}-a{self.task_attempt}"
