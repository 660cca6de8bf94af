"""What names a state: its files, its versions, the directories they lie in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.state.local_dir import HostDir

__all__ = [
    "FileRef",
    "LocalSnapshot",
    "RemotePlace",
    "StagedName",
    "StatePlace",
    "StateRef",
    "TableFiles",
]


class FileRef(msgspec.Struct, frozen=True):
    """A state file: its name in the shared directory, the version it leads to, its checksum.

    ``crc`` is the CRC-32 of the file's bytes as they lie there.
    """

    name: str
    version: int
    size: int
    crc: int


class TableFiles(msgspec.Struct, frozen=True):
    """A base made of several immutable files, some of them shared with older bases."""

    version: int
    files: tuple[FileRef, ...]


class StateRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a subtask's state; travels in instructions, manifests and checkpoints.

    The version is the base (one file, or tables) plus the deltas in their order, or all of it
    ``inline``. ``StateRef(0)`` is the empty state a job begins with.
    """

    version: int
    base: FileRef | None = None
    deltas: tuple[FileRef, ...] = ()
    inline: bytes | None = None
    tables: TableFiles | None = None

    @property
    def files(self) -> tuple[FileRef, ...]:
        """Every file this version needs, base first."""
        base = () if self.base is None else (self.base,)
        tables = () if self.tables is None else self.tables.files
        return (*base, *tables, *self.deltas)

    @property
    def base_version(self) -> int | None:
        """The version the deltas begin at, None if they begin with nothing."""
        if self.tables is not None:
            return self.tables.version
        return None if self.base is None else self.base.version


class LocalSnapshot(msgspec.Struct, frozen=True):
    """A directory on one host that holds a version, unchanging, until a fold has taken it up."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class StatePlace:
    """The directories of one subtask of one operator.

    ``shared_dir`` is the same for all hosts and all attempts of a job: what an older attempt
    published goes on being used, and names keep apart what two attempts write. ``local_dir``
    belongs to a host and to one attempt: there a version number means one state only.
    """

    shared_dir: Path
    local_dir: Path


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A place as the driver names it to a task: where its host keeps state, only a host knows."""

    shared_dir: Path
    local: HostDir

    def here(self) -> StatePlace:
        """Return the place as it is on the host of the calling process."""
        return StatePlace(self.shared_dir, self.local.here())


@dataclass(frozen=True, slots=True)
class StagedName:
    """Who staged a file; no two task attempts of a job's life have the same."""

    attempt: str
    batch: int
    try_: int
    subtask: int
    task_attempt: int

    def __str__(self) -> str:
        return f"{self.attempt}-b{self.batch}-t{self.try_}-s{self.subtask}-a{self.task_attempt}"
