"""The files of a streaming query: what of them a checkpoint needs, kept by second names.

Spark writes each file of a query's checkpoint directory once, under a name of its own, and puts
nearly all in place by a renaming. So a second name keeps what it was when the name was given. What
is kept is the query behind one of its batches: as a crash right behind that batch would have left
it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.connectors.durable import link_or_copy, sync_directory, sync_file
from penstock.connectors.kept_files import KeptFile, describe

NONE_COMMITTED = -1

_OF_BATCHES = ("offsets", "commits")
_BATCH = re.compile(r"\.?([0-9]+)(?:\.compact)?(?:\.crc)?")
_IN_PLACE = {"SSTs", "logs"}
"""Directories in which RocksDB's files get their names before they are whole.

Nothing that counts names one that is not; but what is kept of it must not change."""
_TRIES = 5


def last_committed(query: Path) -> int:
    """Return the number of the last batch that the query counts as done."""
    try:
        names = [path.name for path in (query / "commits").iterdir()]
    except FileNotFoundError:
        return NONE_COMMITTED
    return max((int(name) for name in names if name.isdecimal()), default=NONE_COMMITTED)


class QueryFiles:
    """Keeps a query's files; whoever calls holds the query back from starting another batch.

    A batch that is under way may go on: nothing of it is kept that would make it count.
    """

    def __init__(self, query: Path) -> None:
        self._query = query
        self._known: dict[tuple[Path, int, int, int], KeptFile] = {}
        """What was synced and read for the one before: by name, inode, size and time."""

    def keep(self, target: Path, batch: int) -> list[KeptFile]:
        """Give the files as of a batch second names in a directory; return what proves them."""
        for left in reversed(range(_TRIES)):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            try:
                return self._link_all(target, batch)
            except FileNotFoundError:
                # Spark has put files together, or removed old ones: look again.
                if not left:
                    raise
        raise AssertionError

    def _link_all(self, target: Path, batch: int) -> list[KeptFile]:
        known: dict[tuple[Path, int, int, int], KeptFile] = {}
        for name in _files(self._query):
            if _is_behind(name, batch):
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._link(name, path)
            status = path.stat()
            # A name may come back with another file behind it.
            identity = name, status.st_ino, status.st_size, status.st_mtime_ns
            described = self._known.get(identity)
            if described is None:
                if _IN_PLACE & set(name.parts):
                    _detach(path)
                sync_file(path)
                described = describe(target, name.as_posix())
            known[identity] = described
        for directory, _, _ in os.walk(target):
            sync_directory(Path(directory))
        self._known = known
        return list(known.values())

    def _link(self, name: Path, path: Path) -> None:
        link_or_copy(self._query / name, path)


def seed(kept: Path, query: Path) -> None:
    """Begin a query's directory with what was kept."""
    query.mkdir(parents=True)
    for name in _files(kept):
        (query / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(kept / name, query / name)


def _detach(path: Path) -> None:
    """Give a name a file of its own, which no longer grows."""
    copy = path.with_name(f"{path.name}.tmp")
    shutil.copyfile(path, copy)
    copy.replace(path)


def _files(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            # What is still being written has such a name.
            if not name.endswith((".tmp", ".tmp.crc")):
                yield Path(directory, name).relative_to(root)


def _is_behind(name: Path, batch: int) -> bool:
    """Whether a file plans or counts a batch that comes after this one."""
    found = _BATCH.fullmatch(name.name)
    return name.parts[0] in _OF_BATCHES and found is not None and int(found[1]) > batch
