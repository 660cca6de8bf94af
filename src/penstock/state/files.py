"""State files in the shared directory or a store: written once, verified when they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from penstock.common.new_files import create_file
from penstock.common.storage_url import Location
from penstock.errors import CorruptStateError, PenstockError, StateElsewhereError
from penstock.state.backends.refs import FileRef, StateLocation
from penstock.state.delta import Block, Sums, read_blocks, write_blocks
from penstock.storage.storages import storage_at

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


def place_of(location: StateLocation, ref: FileRef) -> Location:
    """Return where a file is: in the shared directory, or in the store."""
    if ref.stored is None or location.store is None:
        return location.shared_dir / ref.name
    return location.store / ref.stored.object


@contextmanager
def open_file(location: StateLocation, ref: FileRef) -> Iterator[BinaryIO]:
    """Open a file for reading from its beginning to its end, wherever it is.

    Raises:
        CorruptStateError: if it is missing; or if it is too short, when that is found.
        StateElsewhereError: if it is missing, and may be on another host.
    """
    try:
        if ref.stored is None or location.store is None:
            with (location.shared_dir / ref.name).open("rb") as file:
                yield file
        else:
            stored = ref.stored
            storage = storage_at(location.store)
            with storage.open(stored.object, stored.start, ref.size) as file:
                yield file
    except FileNotFoundError:
        raise missing(location, ref) from None


def missing(location: StateLocation, ref: FileRef) -> PenstockError:
    """Return the error for a file that does not exist."""
    place = str(place_of(location, ref))
    if location.is_of_host and ref.stored is None:
        return StateElsewhereError(place)
    return CorruptStateError(place, "it is missing")


def read_file(location: StateLocation, ref: FileRef) -> Iterator[Block]:
    """Read the blocks of a file, verifying that it is the one the ref names.

    Raises:
        CorruptStateError: if it is missing, damaged or another file.
    """
    with open_file(location, ref) as file:
        path = str(place_of(location, ref))
        yield from read_blocks(file, path, ref.version, Sums(ref.size, ref.crc))


def check_exists(location: StateLocation, ref: FileRef) -> None:
    """Check that a file in the shared directory which was verified before still exists.

    Raises:
        CorruptStateError: if it is missing or of another size.
    """
    path = location.shared_dir / ref.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    check_sums(path, (size, ref.crc), (ref.size, ref.crc))


def verify(location: StateLocation, ref: FileRef) -> None:
    """Read a state file and verify its size and checksum.

    Raises:
        CorruptStateError: if it is missing, damaged or another file.
    """
    with open_file(location, ref) as file:
        check_sums(place_of(location, ref), _sums_of(file), (ref.size, ref.crc))


def verify_file(path: Path, size: int, crc: int) -> None:
    """Read a local file, of any format, and verify its size and CRC-32.

    Raises:
        CorruptStateError: if it is missing, damaged or another file.
    """
    try:
        with path.open("rb") as file:
            check_sums(path, _sums_of(file), (size, crc))
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None


def _sums_of(file: BinaryIO) -> tuple[int, int]:
    size = crc = 0
    while piece := file.read(_PIECE):
        crc, size = crc32(piece, crc), size + len(piece)
    return size, crc


def check_sums(path: Location, found: tuple[int, int], wanted: tuple[int, int]) -> None:
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
