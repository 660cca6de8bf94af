"""Files that a source keeps for a snapshot: each is named with its checksum, and proven by it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from zlib import crc32

import msgspec

from penstock.connectors.durable import make_directory, sync_directory, sync_file
from penstock.errors import CorruptStateError

__all__ = ["KeptFile", "KeptFiles", "copy_files", "describe", "prove_file", "prove_files"]

_AT_ONCE = 4
_READ_AT_ONCE = 1 << 20


class KeptFile(msgspec.Struct, frozen=True, array_like=True):
    """One file; ``name`` is relative to a directory, with ``/`` between its parts."""

    name: str
    size: int
    crc: int
    """The CRC-32 of the whole file."""


class KeptFiles(msgspec.Struct, frozen=True):
    """All files of a source in a snapshot."""

    directory: str
    """An absolute path in a source's hands; in a snapshot mostly one from that snapshot."""
    files: list[KeptFile]

    @property
    def is_in_snapshot(self) -> bool:
        """Whether they lie in the snapshot itself, and go where it goes."""
        place = Path(self.directory)
        return not place.is_absolute() and place.parts[0] != os.pardir

    def seen_from(self, snapshot: Path) -> Path:
        """Return where they lie, if the snapshot lies there now."""
        return Path(os.path.normpath(snapshot / self.directory))


def describe(directory: Path, name: str) -> KeptFile:
    """Read a file and return what proves it."""
    size = crc = 0
    with (directory / name).open("rb") as data:
        while block := data.read(_READ_AT_ONCE):
            size += len(block)
            crc = crc32(block, crc)
    return KeptFile(name, size, crc)


def prove_file(directory: Path, file: KeptFile) -> None:
    """Read a file and check that it is the one that was described.

    Raises:
        CorruptStateError: it is missing, damaged or another one.
    """
    path = str(directory / file.name)
    try:
        found = describe(directory, file.name)
    except FileNotFoundError:
        raise CorruptStateError(path, "it is missing") from None
    if found.size != file.size:
        reason = f"it has {found.size} bytes and had {file.size} when it was written"
        raise CorruptStateError(path, reason)
    if found.crc != file.crc:
        raise CorruptStateError(path, "its checksum is not the one it was written with")


def prove_files(directory: Path, files: Iterable[KeptFile]) -> None:
    """Prove all of them.

    Raises:
        CorruptStateError: one is missing, damaged or another one.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(partial(prove_file, directory), files))


def copy_files(kept: KeptFiles, target: Path) -> None:
    """Copy all of them, to stay there whatever happens to these, and read the copies back.

    Raises:
        CorruptStateError: a copy is not what was described.
    """
    source = Path(kept.directory)
    directories = {(target / file.name).parent for file in kept.files} | {target}
    for directory in sorted(directories):
        make_directory(directory)
    for file in kept.files:
        shutil.copyfile(source / file.name, target / file.name)
        sync_file(target / file.name)
    for directory in directories:
        sync_directory(directory)
    prove_files(target, kept.files)
