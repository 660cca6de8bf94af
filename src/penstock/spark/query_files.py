"""The files of a streaming query: what of them a checkpoint needs, kept by second names.

Spark writes each file of a query's checkpoint directory once, under a name of its own, and puts it
in place by a renaming. So a second name keeps what it was when the name was given. What is kept
is the query behind one of its batches: as a crash right behind that batch would have left it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.connectors.durable import link_or_copy, sync_directory, sync_file

NONE_COMMITTED = -1

_OF_BATCHES = ("offsets", "commits")
_BATCH = re.compile(r"\.?([0-9]+)(?:\.compact)?(?:\.crc)?")
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
        self._synced: set[tuple[Path, int]] = set()

    def keep(self, target: Path, batch: int) -> int:
        """Give the files as of a batch second names in a directory; return how many they are."""
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

    def _link_all(self, target: Path, batch: int) -> int:
        count = 0
        for name in _files(self._query):
            if _is_behind(name, batch):
                continue
            self._sync(self._query / name)
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(self._query / name, target / name)
            count += 1
        for directory, _, _ in os.walk(target):
            sync_directory(Path(directory))
        return count

    def _sync(self, path: Path) -> None:
        # A name may come back with another file behind it.
        identity = path, path.stat().st_ino
        if identity not in self._synced:
            sync_file(path)
            self._synced.add(identity)


def seed(kept: Path, query: Path) -> int:
    """Begin a query's directory with what was kept; return how many files that was."""
    query.mkdir(parents=True)
    names = list(_files(kept))
    for name in names:
        (query / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(kept / name, query / name)
    return len(names)


def _files(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            # What is still being written has such a name.
            if not name.endswith(".tmp"):
                yield Path(directory, name).relative_to(root)


def _is_behind(name: Path, batch: int) -> bool:
    """Whether a file plans or counts a batch that comes after this one."""
    found = _BATCH.fullmatch(name.name)
    return name.parts[0] in _OF_BATCHES and found is not None and int(found[1]) > batch
