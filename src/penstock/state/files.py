"""State files in a shared directory: written once, read with proof."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.errors import CorruptStateError
from penstock.state.backends.base import FileRef, StatePlace, StateRef
from penstock.state.delta import Block, Sums, read_blocks, write_blocks

__all__ = ["read_file", "sync_files", "version_of", "write_file"]

BASE = ".base"
DELTA = ".delta"

_VERSION_DIGITS = 12


def file_name(version: int, name: object, suffix: str) -> str:
    """Return the name of a state file; its version can be read back from it."""
    return f"{version:0{_VERSION_DIGITS}d}-{name}{suffix}"


def version_of(path: Path) -> int | None:
    """Return the version in a state file's name, None if it is some other file."""
    digits = path.name[:_VERSION_DIGITS]
    if path.suffix in (BASE, DELTA) and len(digits) == _VERSION_DIGITS and digits.isdecimal():
        return int(digits)
    return None


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


def paths_of(place: StatePlace, ref: StateRef) -> list[Path]:
    """Return the files of a ref, base first."""
    files = ref.deltas if ref.base is None else (ref.base, *ref.deltas)
    return [place.shared_dir / file.name for file in files]


def sync_files(paths: Iterable[Path]) -> None:
    """Make files and their directory entries survive a loss of power."""
    paths = list(paths)
    for path in [*paths, *sorted({path.parent for path in paths})]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
