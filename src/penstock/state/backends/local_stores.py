"""The stores in a host's local directory: their names, locks and removal.

All of them are caches and copies: any may be lost. ``<kind>-<boot>`` is the store that tasks use,
``private-<pid>-<n>`` belongs to one open store, ``snapshot-<version>-<name>`` waits for a
compaction, and names that end in ``.gone-<pid>-<n>`` are being deleted.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from itertools import count
from pathlib import Path

from penstock.state.backends.refs import StagedName

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OWNED = re.compile(r"(?:private|.+\.gone)-(?P<pid>\d+)-\d+")
_SNAPSHOT = re.compile(r"snapshot-(?P<version>\d+)-.+")
_SLOTS = 3
_numbers = count()


def boot_id() -> str:
    """Return an id of this boot of the host.

    Unflushed files may be torn after a crash of the host: another boot uses another directory.
    """
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return "unknown"


def private_path(local_dir: Path) -> Path:
    """Return a path for a store that this process alone will use."""
    return local_dir / f"private-{os.getpid()}-{next(_numbers)}"


def snapshot_path(local_dir: Path, version: int, name: StagedName) -> Path:
    """Return a path for a snapshot; the name is unique to the task attempt."""
    return local_dir / f"snapshot-{version:012d}-{name}"


def discard(path: Path) -> None:
    """Rename a store, so that it is gone at once and as a whole, and delete it.

    Processes that have an LMDB open can continue to use it; a RocksDB must be closed.
    """
    away = path.with_name(f"{path.name}.gone-{os.getpid()}-{next(_numbers)}")
    try:
        path.rename(away)
    except FileNotFoundError:
        return
    shutil.rmtree(away, ignore_errors=True)


def remove_leftovers(local_dir: Path, newest_version: int) -> None:
    """Remove what dead processes left, and snapshots of versions below the newest."""
    if not local_dir.is_dir():
        return
    for path in local_dir.iterdir():
        if (owned := _OWNED.fullmatch(path.name)) is not None:
            gone = not _is_alive(int(owned["pid"]))
        elif (snapshot := _SNAPSHOT.fullmatch(path.name)) is not None:
            gone = int(snapshot["version"]) < newest_version
        else:
            gone = False
        if gone:
            discard(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class LocalSlot:
    """A lock on the store at ``path``, held until it is released or the process dies."""

    __slots__ = ("_lock", "path")

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def release(self) -> None:
        """Release the lock; called once."""
        os.close(self._lock)


def lock_slot(local_dir: Path, kind: str) -> LocalSlot | None:
    """Lock the first free slot, None if there is none.

    If a zombie holds the first, others use a second copy of the state instead of waiting.
    """
    local_dir.mkdir(parents=True, exist_ok=True)
    for number in range(_SLOTS):
        path = local_dir / f"{kind}-{boot_id()}-{number}"
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return LocalSlot(path, lock)
    return None
