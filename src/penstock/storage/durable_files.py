"""Writes, links and checks files so that they survive a power loss.

A file and its name are made durable separately: the name by a sync of the directory it is in. All
crash-critical file operations of the connectors are in this module.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path

from penstock.common.new_files import create_file
from penstock.errors import CorruptStagedRecordsError, LostStagedFileError

_BLOCK_BYTES = 1 << 20
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""Errors of file systems without hard links, without more links to a file, or across devices."""


def sync_directory(directory: Path) -> None:
    """Make files created in or renamed into a directory survive a power loss."""
    sync_file(directory)


def sync_file(path: Path) -> None:
    """Make what any process has written into a file survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Iterable[Path], levels: int) -> None:
    """Make files and their names durable, and the names of this many directories above them."""
    synced = list(paths)
    for path in synced:
        sync_file(path)
    for directory in {above for path in synced for above in list(path.parents)[:levels]}:
        sync_directory(directory)


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents so that they survive a power loss."""
    missing = [directory]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for new in reversed(missing):
        if not new.is_dir():
            new.mkdir(exist_ok=True)
            sync_directory(new.parent)


def write_file(path: Path, data: bytes, mode: str = "xb") -> None:
    """Write and sync a file, by default a new one; its name still has to be synced."""
    opened = path.open(mode) if mode == "ab" else create_file(path, mode)
    with opened as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def check_size(path: Path, size: int) -> None:
    """Raise `LostStagedFileError` unless a file is there and has this many bytes."""
    found = path.stat().st_size if path.exists() else 0
    if found != size:
        raise LostStagedFileError(str(path), size, found)


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file's content."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc


def check_content(path: Path, size: int, crc: int | None) -> None:
    """Check that a file is the one that was written, by its size and, if known, its CRC-32.

    Raises:
        LostStagedFileError: it is missing or of another size.
        CorruptStagedRecordsError: its content is another one.
    """
    check_size(path, size)
    if crc is not None and (found := checksum(path)) != crc:
        raise CorruptStagedRecordsError(str(path), f"its checksum is {found:08x}, not {crc:08x}")


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, in place of what had that name before."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with source.open("rb") as original, create_file(target) as copy:
            shutil.copyfileobj(original, copy, _BLOCK_BYTES)


def give_final_name(hidden: Path, final: Path) -> None:
    """Give a hidden file its final name, never in place of another file.

    The hidden name may stay: after a crash, two names of one file show that this call was done.
    Raises FileExistsError if the final name is taken.
    """
    try:
        os.link(hidden, final)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_to_final_name(hidden, final)


def _rename_to_final_name(hidden: Path, final: Path) -> None:
    try:
        rename_if_absent(hidden, final)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        # No other process creates files of this name, so none can appear after the check.
        if final.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from error
        hidden.rename(final)


def rename_if_absent(source: Path, target: Path) -> None:
    """Rename a file, never in place of another one; Python has no call for this.

    Raises:
        FileExistsError: the new name is taken.
        OSError: with EOPNOTSUPP, the file system cannot do this.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    number = errno.ENOSYS
    if rename is not None:
        paths = _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target)
        if rename(*paths, _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        message = (
            "the file system has neither hard links nor renameat2(RENAME_NOREPLACE), so two "
            "drivers could overwrite each other's files; choose another directory"
        )
        raise OSError(errno.EOPNOTSUPP, message, str(target))
    raise OSError(number, os.strerror(number), str(target))
