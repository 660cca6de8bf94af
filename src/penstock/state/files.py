"""State files in a shared directory: written once, read with proof."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

from penstock.errors import CorruptStateError
from penstock.state.backends.refs import FileRef, StatePlace
from penstock.state.delta import Block, Sums, read_blocks, write_blocks

__all__ = ["attempt_of", "file_name", "read_file", "sync_files", "verify_file", "write_file"]

BASE = ".base"
DELTA = ".delta"

_VERSION_DIGITS = 12
_PIECE = 1 << 20
_STAGED = re.compile(r"[0-9]+-(a[0-9]+)-b")


def file_name(version: int, name: object, suffix: str) -> str:
    """Return the name of a state file; files of a directory sort by version."""
    return f"{version:0{_VERSION_DIGITS}d}-{name}{suffix}"


def attempt_of(name: str) -> str:
    """Return the attempt that wrote a state file of this name, "" if the name does not say it."""
    found = _STAGED.match(name)
    return "" if found is None else found[1]


def write_file(
    directory: Path, name: str, version: int, blocks: Iterable[Block], *, durable: bool
) -> FileRef:
    """Write a file under its final name, which nobody else may have used."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / name).open("xb") as file:
        sums = write_blocks(file, version, blocks)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return FileRef(name, version, sums.size, sums.crc)


def read_file(place: StatePlace, ref: FileRef) -> Iterator[Block]:
    """Read a file's blocks, proving that it is the one the ref means.

    Raises:
        CorruptStateError: if it is missing, damaged or another file.
    """
    path = place.shared_dir / ref.name
    try:
        with path.open("rb") as file:
            yield from read_blocks(file, path, ref.version, Sums(ref.size, ref.crc))
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None


def check_there(place: StatePlace, ref: FileRef) -> None:
    """Make sure that a file which was proven before has not gone away.

    Raises:
        CorruptStateError: if it is missing or of another size.
    """
    path = place.shared_dir / ref.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    if size != ref.size:
        raise CorruptStateError(str(path), f"it has {size} bytes, not {ref.size}")


def verify_file(place: StatePlace, ref: FileRef) -> None:
    """Read a file, of whatever format, and prove that it is the one the ref means.

    Raises:
        CorruptStateError: if it is missing, damaged or another file.
    """
    path = place.shared_dir / ref.name
    crc = size = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                crc, size = crc32(piece, crc), size + len(piece)
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    check_sums(path, ref, size, crc)


def check_sums(path: Path, ref: FileRef, size: int, crc: int) -> None:
    """Refuse a file whose size or checksum is not that of the ref."""
    if size != ref.size:
        raise CorruptStateError(str(path), f"it has {size} bytes, not {ref.size}")
    if crc != ref.crc:
        raise CorruptStateError(str(path), f"its checksum is {crc:08x}, not {ref.crc:08x}")


def sync_files(paths: Iterable[Path]) -> None:
    """Make files and their directory entries survive a loss of power."""
    paths = list(paths)
    for path in [*paths, *sorted({path.parent for path in paths})]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
