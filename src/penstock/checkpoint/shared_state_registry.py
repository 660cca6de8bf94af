"""Counts who needs which state file, and deletes a file when nothing needs it any more.

Checkpoints share files: state that did not change between two checkpoints is stored once. A file is
needed by retained checkpoints, by snapshots that are not complete yet, and by the running state,
which the next checkpoint will refer to.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from penstock.common.storage_url import Location, StorageUrl
from penstock.ids import CheckpointId, is_no_later
from penstock.state.files import attempt_of
from penstock.storage.storages import storage_at

logger = logging.getLogger("penstock.checkpoint")

_CLOSE_TIMEOUT_S = 60.0


class StateFilesLease:
    """Keeps a set of state files from being deleted, until it is released or transferred.

    It has one owner at a time, which either releases it or passes it on.
    """

    def __init__(self, registry: SharedStateRegistry, files: Iterable[Location] = ()) -> None:
        """Use `SharedStateRegistry.acquire`."""
        self._registry = registry
        self.files = frozenset[Location]()
        self.replace(files)

    def replace(self, files: Iterable[Location]) -> None:
        """Keep exactly these files from now on."""
        self._registry._exchange(self, frozenset(files))

    def add(self, files: Iterable[Location]) -> None:
        """Keep these files, too."""
        self.replace(self.files.union(files))

    def release(self) -> None:
        """Keep nothing any more; may be repeated."""
        self.replace(())


class SharedStateRegistry:
    """The leases of one job attempt and the checkpoints it retains; any thread may call."""

    def __init__(self, *, files_are_here: bool = True) -> None:
        """Create a registry; tasks delete the files if they are not on this host."""
        self._lock = threading.Lock()
        self._stores = _StoreDeletions()
        self._elsewhere: defaultdict[Path, list[str]] | None = None
        """By directory, the names of files that tasks have to delete."""
        if not files_are_here:
            self._elsewhere = defaultdict(list)
        self._references: Counter[Location] = Counter()
        self._checkpoints: dict[CheckpointId, StateFilesLease] = {}

    def acquire(self, files: Iterable[Location] = ()) -> StateFilesLease:
        """Return a lease on some files."""
        return StateFilesLease(self, files)

    def register_checkpoint(self, checkpoint: CheckpointId, files: Iterable[Location]) -> None:
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

    def _exchange(self, lease: StateFilesLease, files: frozenset[Location]) -> None:
        # Region loops, checkpoint executors and the coordinator lease the same files.
        with self._lock:
            added, dropped = files - lease.files, lease.files - files
            lease.files = files
            self._references.update(added)
            self._references.subtract(dropped)
            unneeded = sorted((f for f in dropped if not self._references[f]), key=str)
            for file in unneeded:
                del self._references[file]
        # Outside the lock: only the owner of a lease can name its files, so none comes back.
        for file in unneeded:
            self.delete(file)

    def close(self) -> None:
        """Wait until what was deleted is gone from stores, too; nothing may be leased afterwards.

        What remains after a while is removed by the next attempt.
        """
        self._stores.close()

    def take_unneeded(self, directory: Path) -> list[str]:
        """Return the names of files that a task has to delete; each of them once."""
        if self._elsewhere is None:
            return []
        with self._lock:
            return self._elsewhere.pop(directory, [])

    def delete(self, file: Location) -> None:
        """Delete a file that nothing has leased; soon, if in a store or on another host."""
        if isinstance(file, StorageUrl):
            self._stores.add(file)
            return
        if self._elsewhere is not None:
            with self._lock:
                self._elsewhere[file.parent].append(file.name)
            return
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("unneeded file %s cannot be deleted: %s", file, error)


class _StoreDeletions:
    """Deletes files of stores in a thread of its own, with few requests.

    Those who give up files, region loops and the coordinator, do not wait for a store.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[StorageUrl | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def add(self, file: StorageUrl) -> None:
        """Delete a file soon."""
        with self._lock:
            if self._is_closed:
                return  # the next attempt deletes it
            self._queue.put(file)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="delete-state-files", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Wait until everything is deleted, for a limited time."""
        with self._lock:
            thread, self._is_closed = self._thread, True
        if thread is not None:
            self._queue.put(None)
            thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (file := self._queue.get()) is not None:
            files = [file]
            is_last = False
            while not (self._queue.empty() or is_last):
                following = self._queue.get()
                if following is None:
                    is_last = True
                else:
                    files.append(following)
            _delete_from_stores(files)
            if is_last:
                return


def _delete_from_stores(files: Iterable[StorageUrl]) -> None:
    by_store: defaultdict[StorageUrl, list[str]] = defaultdict(list)
    for file in files:
        by_store[replace(file, parts=())].append(file.path)
    for store, paths in by_store.items():
        try:
            storage_at(store).delete_all(paths)
        except Exception as error:
            # Whatever it is: the thread has to go on with what is deleted next.
            message = "%d unneeded files in %s cannot be deleted, the next attempt tries again: %s"
            logger.warning(message, len(paths), store, error)


def sweep(shared: Location, keep: Set[str], attempt: str) -> list[str]:
    """Delete the files of an attempt and older ones that `keep` lacks, and empty directories.

    Paths are relative to `shared`. Called by an attempt that has won the journal, before its first
    task runs or after its last: it removes what tasks staged and no checkpoint refers to. May be
    interrupted and repeated. It does no harm in a driver that is being fenced: files of later
    attempts stay, and so do files whose name does not say which attempt wrote them.
    """
    storage = storage_at(shared)
    unneeded = [
        path
        for path in storage.list("")
        if path not in keep and is_no_later(attempt_of(PurePosixPath(path).name), attempt)
    ]
    storage.delete_all(unneeded)
    if isinstance(shared, Path):
        for directory, _, _ in os.walk(shared, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()
    return unneeded
