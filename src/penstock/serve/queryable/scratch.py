"""The server's directory for links and copies of state files; what a killed server left is removed.

A server holds a lock on its directory: a directory whose lock is free belongs to no server.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

_PREFIX = "penstock-serve-state-"
_LOCK = "lock"


class Scratch:
    """A private directory that exists while state is looked up; any thread may call."""

    def __init__(self, parent: Path | None = None) -> None:
        """Use a directory below `parent`, or that for temporary files; remove abandoned ones."""
        self._parent = parent or Path(tempfile.gettempdir())
        self._lock = threading.Lock()
        self._directory: Path | None = None
        self._file: int | None = None
        self._count = 0
        remove_abandoned(self._parent)

    def new(self) -> Path:
        """Return the path of a directory that is not in use; it does not exist yet."""
        with self._lock:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
                flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(self._directory / _LOCK, flags, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._count += 1
            return self._directory / str(self._count)

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
            if self._file is not None:
                os.close(self._file)
            self._directory = self._file = None


def remove_abandoned(parent: Path) -> None:
    """Remove the directories of this user's servers that do not run any more."""
    try:
        found = [path for path in parent.iterdir() if path.name.startswith(_PREFIX)]
    except OSError:
        return
    for directory in found:
        _remove_if_abandoned(directory)


def _remove_if_abandoned(directory: Path) -> None:
    try:
        facts = directory.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
            return
        file = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # a server has just created it, or removes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except OSError:
        pass  # its server runs
    finally:
        os.close(file)
