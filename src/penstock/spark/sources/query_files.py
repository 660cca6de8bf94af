"""Snapshots the checkpoint directory of a streaming query with hard links.

Spark writes each file of that directory once, under its own name, and renames nearly all of them
into place. So a hard link preserves a file as it is. A snapshot holds the query after one of its
batches, as if Spark had crashed right after that batch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.connectors.contracts.snapshot_files import SnapshotFile, describe_file
from penstock.storage.durable_files import link_or_copy, sync_directory, sync_file

NONE_COMMITTED = -1

_OF_BATCHES = ("offsets", "commits")
_BATCH = re.compile(r"\.?([0-9]+)(?:\.compact)?(?:\.crc)?")
_IN_PLACE = {"SSTs", "logs"}
"""Directories where RocksDB writes files under their final names.

No committed batch refers to an incomplete file, but a linked one could still change: they are
copied."""
_TRIES = 5


def last_committed(query: Path) -> int:
    """Return the number of the last batch that the query has committed."""
    try:
        names = [path.name for path in (query / "commits").iterdir()]
    except FileNotFoundError:
        return NONE_COMMITTED
    return max((int(name) for name in names if name.isdecimal()), default=NONE_COMMITTED)


class QueryFiles:
    """Snapshots the files of a query; the caller keeps the query from starting another batch.

    A running batch may continue: a snapshot leaves out the files that would commit it.
    """

    def __init__(self, query: Path) -> None:
        self._query = query
        self._known: dict[tuple[Path, int, int, int], SnapshotFile] = {}
        """Files of the last snapshot, synced and described: by name, inode, size and time."""

    def snapshot(self, target: Path, batch: int) -> list[SnapshotFile]:
        """Link the files as of a batch into a directory; return them with their checksums."""
        for left in reversed(range(_TRIES)):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            try:
                return self._link_all(target, batch)
            except FileNotFoundError:
                # Spark has compacted or removed files meanwhile: list them again.
                if not left:
                    raise
        raise AssertionError

    def _link_all(self, target: Path, batch: int) -> list[SnapshotFile]:
        known: dict[tuple[Path, int, int, int], SnapshotFile] = {}
        for name in _files(self._query):
            if _is_after(name, batch):
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._link(name, path)
            status = path.stat()
            # Another file may get the same name later.
            identity = name, status.st_ino, status.st_size, status.st_mtime_ns
            described = self._known.get(identity)
            if described is None:
                if _IN_PLACE & set(name.parts):
                    _detach(path)
                sync_file(path)
                described = describe_file(target, name.as_posix())
            known[identity] = described
        for directory, _, _ in os.walk(target):
            sync_directory(Path(directory))
        self._known = known
        return list(known.values())

    def _link(self, name: Path, path: Path) -> None:
        link_or_copy(self._query / name, path)


def seed(snapshot: Path, query: Path) -> None:
    """Start the directory of a query with the files of a snapshot."""
    query.mkdir(parents=True)
    for name in _files(snapshot):
        (query / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(snapshot / name, query / name)


def _detach(path: Path) -> None:
    """Replace a link with a copy, which no longer grows."""
    copy = path.with_name(f"{path.name}.tmp")
    shutil.copyfile(path, copy)
    copy.replace(path)


def _files(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            # These are still being written.
            if not name.endswith((".tmp", ".tmp.crc")):
                yield Path(directory, name).relative_to(root)


def _is_after(name: Path, batch: int) -> bool:
    """Whether a file plans or commits a later batch."""
    found = _BATCH.fullmatch(name.name)
    return name.parts[0] in _OF_BATCHES and found is not None and int(found[1]) > batch
