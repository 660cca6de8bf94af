"""Moves files between this machine and a storage, and verifies them by size and CRC-32."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from penstock.common.new_files import create_file
from penstock.errors import CorruptStateError
from penstock.storage.contract import Storage


def verified(storage: Storage, path: str, size: int, crc: int) -> Iterator[bytes]:
    """Return a file's content in pieces; the end comes only if it is the file that was written.

    Raises:
        CorruptStateError: it is missing, damaged or another one.
    """
    found_size = found_crc = 0
    try:
        for piece in storage.stream(path):
            found_size, found_crc = found_size + len(piece), crc32(piece, found_crc)
            yield piece
    except FileNotFoundError:
        raise CorruptStateError(storage.location(path), "it is missing") from None
    if found_size != size:
        raise CorruptStateError(storage.location(path), f"it has {found_size} bytes, not {size}")
    if found_crc != crc:
        reason = f"its checksum is {found_crc:08x}, not {crc:08x}"
        raise CorruptStateError(storage.location(path), reason)


def verify(storage: Storage, path: str, size: int, crc: int) -> None:
    """Read a file and verify that it is the one that was written.

    Raises:
        CorruptStateError: it is missing, damaged or another one.
    """
    for _ in verified(storage, path, size, crc):
        pass


def check_size(storage: Storage, path: str, size: int) -> None:
    """Verify that a file is there with its size, without reading it.

    Raises:
        CorruptStateError: it is missing or of another size.
    """
    found = storage.stat(path)
    if found is None:
        raise CorruptStateError(storage.location(path), "it is missing")
    if found.size != size:
        raise CorruptStateError(storage.location(path), f"it has {found.size} bytes, not {size}")


def download(storage: Storage, path: str, target: Path, size: int, crc: int) -> None:
    """Copy a file to this machine, under a new name, and verify it.

    Raises:
        CorruptStateError: it is missing, damaged or another one; there is no copy then.
    """
    with create_file(target) as copy:
        for piece in verified(storage, path, size, crc):
            copy.write(piece)


@contextmanager
def temporary_directory(below: Path | None) -> Iterator[Path]:
    """Return a new directory on this machine, removed afterwards; by default the system's."""
    if below is not None:
        below.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=below) as path:
        yield Path(path)
