"""Making files and names durable: a file's directory entry needs a sync of its own."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

__all__ = ["link_or_copy", "make_directory", "show_under", "sync_directory", "sync_file"]

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""What a file system answers that has no hard links, no more for this file, or none to here."""


def sync_directory(directory: Path) -> None:
    """Make files created in or renamed into a directory survive a power loss."""
    _sync(directory)


def sync_file(path: Path) -> None:
    """Make what any process has written into a file survive a power loss."""
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Create a directory and what is missing above it, so that it survives a power loss."""
    missing = [directory]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for new in reversed(missing):
        if not new.is_dir():
            new.mkdir(exist_ok=True)
            sync_directory(new.parent)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; what was under that name before is gone."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def show_under(hidden: Path, final: Path) -> None:
    """Give a hidden file its final name, never in the place of another file.

    It may keep the hidden name too: two names of one file tell, after a crash, that this was
    done. Raises FileExistsError if the final name is taken.
    """
    try:
        os.link(hidden, final)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Only a renaming is atomic here. Nobody else makes files of that name, so that
        # nothing can come between the question and the act.
        if final.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from error
        hidden.rename(final)
