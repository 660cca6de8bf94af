"""Files of a source that belong to a snapshot, each named with its size and checksum."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from zlib import crc32

import msgspec

from penstock.common.new_files import create_file
from penstock.errors import CorruptStateError
from penstock.storage.durable_files import make_directory, sync_directory, sync_file

_THREADS = 4
_BLOCK_BYTES = 1 << 20


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True):
    """One file; ``name`` is relative to a directory, with ``/`` between its parts."""

    name: str
    size: int
    crc: int
    """The CRC-32 of the whole file."""


class SnapshotFiles(msgspec.Struct, frozen=True):
    """All files of a source in a snapshot, in one directory."""

    directory: str
    """Absolute when a source names it; in a snapshot usually relative to the snapshot."""
    files: list[SnapshotFile]

    @property
    def is_in_snapshot(self) -> bool:
        """Whether the files are inside the snapshot, and move with it."""
        place = Path(self.directory)
        return not place.is_absolute() and place.parts[0] != os.pardir

    def located_in(self, snapshot: Path) -> Path:
        """Return the directory, given where the snapshot is now."""
        return Path(os.path.normpath(snapshot / self.directory))


def describe_file(directory: Path, name: str) -> SnapshotFile:
    """Read a file and return its size and checksum."""
    size = crc = 0
    with (directory / name).open("rb") as data:
        while block := data.read(_BLOCK_BYTES):
            size += len(block)
            crc = crc32(block, crc)
    return SnapshotFile(name, size, crc)


def verify_snapshot_file(directory: Path, file: SnapshotFile) -> None:
    """Read a file and check that it is as described.

    Raises:
        CorruptStateError: if it is missing, damaged or another one.
    """
    path = str(directory / file.name)
    try:
        found = describe_file(directory, file.name)
    except FileNotFoundError:
        raise CorruptStateError(path, "it is missing") from None
    if found.size != file.size:
        reason = f"it has {found.size} bytes and had {file.size} when it was written"
        raise CorruptStateError(path, reason)
    if found.crc != file.crc:
        raise CorruptStateError(path, "its checksum is not the one it was written with")


def verify_snapshot_files(directory: Path, files: Iterable[SnapshotFile]) -> None:
    """Check several files in parallel.

    Raises:
        CorruptStateError: if one is missing, damaged or another one.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(partial(verify_snapshot_file, directory), files))


def copy_snapshot_files(kept: SnapshotFiles, target: Path) -> None:
    """Copy the files durably, and verify the copies.

    Raises:
        CorruptStateError: if a copy is not as described.
    """
    source = Path(kept.directory)
    directories = {(target / file.name).parent for file in kept.files} | {target}
    for directory in sorted(directories):
        make_directory(directory)
    for file in kept.files:
        # A crash in between leaves files that no metadata names.
        with (source / file.name).open("rb") as original, create_file(target / file.name) as copy:
            shutil.copyfileobj(original, copy, _BLOCK_BYTES)
        sync_file(target / file.name)
    for directory in directories:
        sync_directory(directory)
    verify_snapshot_files(target, kept.files)
