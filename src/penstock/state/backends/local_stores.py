"""Names of the stores in a host's local directory, and getting rid of them.

All of them are caches and copies: any may be lost. ``<kind>-<boot>`` is the store tasks go on
with, ``private-<pid>-<n>`` belongs to one open store, ``snapshot-<version>-<name>`` waits for a
fold, and whatever ends in ``.gone-<pid>-<n>`` is being deleted.
"""

from __future__ import annotations

import os
import re
import shutil
from itertools import count
from pathlib import Path

from penstock.state.backends.refs import StagedName

__all__ = ["boot_id", "discard", "private_path", "remove_leftovers", "snapshot_path"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OWNED = re.compile(r"(?:private|.+\.gone)-(?P<pid>\d+)-\d+")
_SNAPSHOT = re.compile(r"snapshot-(?P<version>\d+)-.+")
_numbers = count()


def boot_id() -> str:
    """Return what tells this boot of the host from others.

    Unflushed files may be torn after a crash of the host: another boot, another directory.
    """
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return "unknown"


def private_path(local_dir: Path) -> Path:
    """Return a path for a store that this process alone will use."""
    return local_dir / f"private-{os.getpid()}-{next(_numbers)}"


def snapshot_path(local_dir: Path, version: int, name: StagedName) -> Path:
    """Return a path for a snapshot; the name is its task attempt's alone."""
    return local_dir / f"snapshot-{version:012d}-{name}"


def discard(path: Path) -> None:
    """Take a store out of the way, at once and as a whole, and delete it.

    Processes that have an LMDB open keep what they have; a RocksDB must be closed.
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
