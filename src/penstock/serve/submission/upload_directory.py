"""The directory of a server's programs and submitted jobs: one user's, for one server at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.common.config.submission_options import UPLOAD_DIR
from penstock.errors import ServerAlreadyRunningError, UnusableDirectoryError
from penstock.storage.durable_files import make_directory

_OWNER_ONLY = 0o700


def prepare(root: Path) -> None:
    """Create a directory that only its owner may enter.

    Raises:
        UnusableDirectoryError: that is not possible, or another user is its owner.
    """
    try:
        make_directory(root.parent)
        root.mkdir(_OWNER_ONLY, exist_ok=True)
        if (owner := root.stat().st_uid) != os.geteuid():
            reason = f"it belongs to user {owner}"
            raise UnusableDirectoryError(UPLOAD_DIR.key, str(root), reason)
        root.chmod(_OWNER_ONLY)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnusableDirectoryError(UPLOAD_DIR.key, str(root), reason) from error


def lock(root: Path) -> int:
    """Lock the directory as long as this process lives.

    Raises:
        ServerAlreadyRunningError: another process has locked it.
    """
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ServerAlreadyRunningError(str(root)) from error
    return descriptor
