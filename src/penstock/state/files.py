"""State files in the shared directory: written once, verified when they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

from penstock.common.new_files import create_file
from penstock.errors import CorruptStateError
from penstock.state.backends.refs import FileRef, StateLocation
from penstock.state.delta import Block, Sums, read_blocks, write_blocks

BASE = ".base"
DELTA = ".delta"

_VERSION_DIGITS = 12
_PIECE = 1 << 20
_STAGED = re.compile(r"[0-9]+-(a[0-9]+)-b")


def file_name(version: int, name: object, suffix: str) -> str:
    """Return the name of a state file; files of a directory sort by version."""
    return f"{version:0{_VERSION_DIGITS}d}-{name}{suffix}"


def attempt_of(name: str) -> str:
    """Return the attempt that wrote a state file, "" if its name does not contain it."""
    found = _STAGED.match(name)
    return "" if found is None else found[1]


def write_file(
    directory: Path, name: str, version: int, blocks: Iterable[Block], *, durable: bool
) -> FileRef:
    """Write a file under its final name, which must be new."""
    directory.mkdir(parents=True, exist_ok=True)
    with create_file(directory / name) as file:
        sums = write_blocks(file, version, blocks)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return FileRef(name, version, sums.size, sums.crc)


def read_file(location: StateLocation, ref: FileRef) -> Iterator[Block]:
    """Read the blocks of a file, verifying that it is the one the ref names.

    Raises:
        CorruptStateError: if it is missing, damaged or another file.
    """
    path = location.shared_dir / ref.name
    try:
        with path.open("rb") as file:
            yield from read_blocks(file, path, ref.version, Sums(ref.size, ref.crc))
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None


def check_exists(location: StateLocation, ref: FileRef) -> None:
    """Check that a file which was verified before still exists.

    Raises:
        CorruptStateError: if it is missing or of another size.
    """
    path = location.shared_dir / ref.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    check_sums(path, (size, ref.crc), (ref.size, ref.crc))


def verify_file(path: Path, size: int, crc: int) -> None:
    """Read a file, of any format, and verify its size and CRC-32.

    Raises:
        CorruptStateError: if it is missing, damaged or another file.
    """
    found_crc = found_size = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                found_crc, found_size = crc32(piece, found_crc), found_size + len(piece)
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    check_sums(path, (found_size, found_crc), (size, crc))


def check_sums(path: Path, found: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Raise `CorruptStateError` if the size or checksum is not the expected one."""
    (size, crc), (wanted_size, wanted_crc) = found, wanted
    if size != wanted_size:
        raise CorruptStateError(str(path), f"it has {size} bytes, not {wanted_size}")
    if crc != wanted_crc:
        raise CorruptStateError(str(path), f"its checksum is {crc:08x}, not {wanted_crc:08x}")


def sync_files(paths: Iterable[Path]) -> None:
    """Make files and their directory entries survive a power failure."""
    paths = list(paths)
    for path in [*paths, *sorted({path.parent for path in paths})]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
