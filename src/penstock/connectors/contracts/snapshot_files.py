"""Files of a source that belong to a snapshot, each named with its size and checksum."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from zlib import crc32

import msgspec

from penstock.common.config.locations import below, scheme_of
from penstock.common.new_files import create_file
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import CorruptStateError
from penstock.storage.durable_files import make_directory, sync_directory, sync_file
from penstock.storage.storages import storage_at
from penstock.storage.verified_files import check_size, download, verified, verify

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
    """Absolute when a source names it; in a snapshot usually relative to the snapshot.

    It may be a URL if the snapshot is in a store.
    """
    files: list[SnapshotFile]

    @property
    def is_in_snapshot(self) -> bool:
        """Whether the files are inside the snapshot, and move with it."""
        place = PurePosixPath(self.directory)
        return self._is_relative and place.parts[0] != os.pardir

    def located_in(self, snapshot: Location) -> Location:
        """Return the directory, given where the snapshot is now."""
        if not self._is_relative:
            return below(snapshot, self.directory)
        if isinstance(snapshot, Path):
            return Path(os.path.normpath(snapshot / self.directory))
        for name in PurePosixPath(self.directory).parts:
            snapshot = snapshot.parent if name == os.pardir else snapshot / name
        return snapshot

    @property
    def _is_relative(self) -> bool:
        return scheme_of(self.directory) is None and not self.directory.startswith("/")


def describe_file(directory: Path, name: str) -> SnapshotFile:
    """Read a file and return its size and checksum."""
    size = crc = 0
    with (directory / name).open("rb") as data:
        while block := data.read(_BLOCK_BYTES):
            size += len(block)
            crc = crc32(block, crc)
    return SnapshotFile(name, size, crc)


def verify_snapshot_file(directory: Location, file: SnapshotFile) -> None:
    """Read a file and check that it is as described.

    Raises:
        CorruptStateError: if it is missing, damaged or another one.
    """
    if isinstance(directory, StorageUrl):
        verify(storage_at(directory), file.name, file.size, file.crc)
        return
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


def verify_snapshot_files(directory: Location, files: Iterable[SnapshotFile]) -> None:
    """Check several files in parallel.

    Raises:
        CorruptStateError: if one is missing, damaged or another one.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(partial(verify_snapshot_file, directory), files))


def copy_snapshot_files(source: Location, files: Iterable[SnapshotFile], target: Location) -> None:
    """Copy files durably, and verify the copies.

    Raises:
        CorruptStateError: if a copy is not as described.
    """
    files = list(files)
    if isinstance(target, StorageUrl):
        _upload(source, files, target)
        return
    directories = {(target / file.name).parent for file in files} | {target}
    for directory in sorted(directories):
        make_directory(directory)
    # A crash in between leaves files that no metadata names.
    if isinstance(source, StorageUrl):
        fetch_snapshot_files(source, files, target)
    else:
        for file in files:
            path = target / file.name
            with (source / file.name).open("rb") as original, create_file(path) as copy:
                shutil.copyfileobj(original, copy, _BLOCK_BYTES)
    for file in files:
        sync_file(target / file.name)
    for directory in directories:
        sync_directory(directory)
    verify_snapshot_files(target, files)


def fetch_snapshot_files(source: StorageUrl, files: Iterable[SnapshotFile], target: Path) -> None:
    """Copy files of a snapshot in a store to this machine, and verify them on the way.

    Raises:
        CorruptStateError: if one is missing, damaged or another one.
    """
    storage = storage_at(source)

    def fetch(file: SnapshotFile) -> None:
        (target / file.name).parent.mkdir(parents=True, exist_ok=True)
        download(storage, file.name, target / file.name, file.size, file.crc)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(fetch, files))


def _upload(source: Location, files: list[SnapshotFile], target: StorageUrl) -> None:
    original, storage = storage_at(source), storage_at(target)

    def upload(file: SnapshotFile) -> None:
        # A damaged original raises before the upload ends, so nothing is written.
        storage.write(file.name, verified(original, file.name, file.size, file.crc))
        check_size(storage, file.name, file.size)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(upload, files))
