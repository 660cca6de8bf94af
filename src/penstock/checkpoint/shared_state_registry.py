"""Counts who needs which state file, and deletes a file when nothing needs it any more.

Checkpoints share files: state that did not change between two checkpoints is stored once. A file is
needed by retained checkpoints, by snapshots that are not complete yet, and by the running state,
which the next checkpoint will refer to.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path

from penstock.ids import CheckpointId, is_no_later
from penstock.state.files import attempt_of

logger = logging.getLogger("penstock.checkpoint")


class StateFilesLease:
    """Keeps a set of state files from being deleted, until it is released or transferred.

    It has one owner at a time, which either releases it or passes it on.
    """

    def __init__(self, registry: SharedStateRegistry, files: Iterable[Path] = ()) -> None:
        """Use `SharedStateRegistry.acquire`."""
        self._registry = registry
        self.files = frozenset[Path]()
        self.replace(files)

    def replace(self, files: Iterable[Path]) -> None:
        """Keep exactly these files from now on."""
        self._registry._exchange(self, frozenset(files))

    def add(self, files: Iterable[Path]) -> None:
        """Keep these files, too."""
        self.replace(self.files.union(files))

    def release(self) -> None:
        """Keep nothing any more; may be repeated."""
        self.replace(())


class SharedStateRegistry:
    """The leases of one job attempt and the checkpoints it retains; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._references: Counter[Path] = Counter()
        self._checkpoints: dict[CheckpointId, StateFilesLease] = {}

    def acquire(self, files: Iterable[Path] = ()) -> StateFilesLease:
        """Return a lease on some files."""
        return StateFilesLease(self, files)

    def register_checkpoint(self, checkpoint: CheckpointId, files: Iterable[Path]) -> None:
        """Keep the files of a checkpoint until it is unregistered."""
        self._checkpoints[checkpoint] = self.acquire(files)

    def transfer(self, checkpoint: CheckpointId, leases: Iterable[StateFilesLease]) -> None:
        """Let a completed checkpoint take over the leases of its snapshots."""
        owned = list(leases)
        # The new lease before the old ones go: a file without a lease for a moment may be deleted.
        self.register_checkpoint(checkpoint, (file for lease in owned for file in lease.files))
        for lease in owned:
            lease.release()

    def unregister_checkpoints(self, checkpoints: Iterable[CheckpointId]) -> None:
        """Delete the files that only these checkpoints needed."""
        for checkpoint in checkpoints:
            if (lease := self._checkpoints.pop(checkpoint, None)) is not None:
                lease.release()

    def _exchange(self, lease: StateFilesLease, files: frozenset[Path]) -> None:
        # Region loops, checkpoint executors and the coordinator lease the same files.
        with self._lock:
            added, dropped = files - lease.files, lease.files - files
            lease.files = files
            self._references.update(added)
            self._references.subtract(dropped)
            unneeded = sorted(file for file in dropped if not self._references[file])
            for file in unneeded:
                del self._references[file]
        # Outside the lock: only the owner of a lease can name its files, so none comes back.
        self._delete(unneeded)

    def _delete(self, files: Iterable[Path]) -> None:
        for path in files:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("unneeded state file %s cannot be deleted: %s", path, error)


def sweep(shared_dir: Path, keep: Set[Path], attempt: str) -> list[Path]:
    """Delete the files of an attempt and older ones that `keep` lacks, and empty directories.

    Called by an attempt that has won the journal, before its first task runs or after its last:
    it removes what tasks staged and no checkpoint refers to. May be interrupted and repeated. It
    does no harm in a driver that is being fenced: files of later attempts stay, and so do files
    whose name does not say which attempt wrote them.

    Raises:
        ValueError: if `keep` names a file elsewhere; nothing is deleted then, because with paths
            that do not compare every file would look unneeded.
    """
    stray = next((path for path in sorted(keep) if not path.is_relative_to(shared_dir)), None)
    if stray is not None:
        msg = f"{stray} is not below {shared_dir}"
        raise ValueError(msg)
    deleted: list[Path] = []
    for directory, _, names in os.walk(shared_dir, topdown=False):
        place = Path(directory)
        old = [place / name for name in names if is_no_later(attempt_of(name), attempt)]
        unneeded = [path for path in old if path not in keep]
        for path in unneeded:
            path.unlink(missing_ok=True)
        deleted += unneeded
        if place != shared_dir:
            with suppress(OSError):
                place.rmdir()
    return sorted(deleted)
