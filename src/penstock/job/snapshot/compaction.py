"""Compacts the deltas of a stage's state into new bases, concurrently with micro-batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import msgspec

from penstock.checkpoint.shared_state_registry import StateFilesLease
from penstock.job.state_jobs import CompactionWork
from penstock.state.backends.refs import LocalSnapshot, StateRef

logger = logging.getLogger("penstock.job")

_DELTAS_FACTOR = 8

Bases = Sequence[StateRef | None]
"""Per subtask, the new base; None if its state did not change."""


class BackgroundCompaction:
    """Runs one compaction at a time in a thread of its own.

    The region loop starts it and takes its result between two micro-batches. The thread writes
    the result before it ends and the loop reads it only after that, so it needs no lock.
    """

    def __init__(self, stage: str, compact: Callable[[list[CompactionWork]], Bases]) -> None:
        self._stage = stage
        self._compact = compact
        self._thread: threading.Thread | None = None
        self._files: StateFilesLease | None = None
        self._bases: Bases = ()

    @property
    def is_running(self) -> bool:
        """Whether a compaction was started whose result is not taken yet."""
        return self._thread is not None

    def start(self, work: list[CompactionWork], files: StateFilesLease) -> None:
        """Start a compaction; the lease keeps the files that it reads."""
        self._files, self._bases = files, ()
        self._thread = threading.Thread(
            target=self._run, args=(work,), name=f"compact-{self._stage}", daemon=True
        )
        self._thread.start()

    def take(self) -> tuple[StateFilesLease, Bases] | None:
        """Return the bases of a finished compaction, and its lease; None if there is none."""
        if self._thread is None or self._thread.is_alive():
            return None
        assert self._files is not None
        self._thread = None
        return self._files, self._bases

    def close(self) -> None:
        """Wait for a running compaction."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, work: list[CompactionWork]) -> None:
        try:
            self._bases = self._compact(work)
        except Exception as error:
            # All deltas are still there: the next compaction includes them.
            logger.warning("Stage %r could not compact its state: %s", self._stage, error)


def is_worth_compacting(ref: StateRef, after: int) -> bool:
    """Decide whether a state's deltas should become a base.

    A new base is as large as the state, and the next checkpoint has to write it: small changes of a
    large state are left until they make up half of it, unless there are very many deltas.
    """
    if len(ref.deltas) < after:
        return False
    changed = sum(delta.size for delta in ref.deltas)
    base = sum(file.size for file in ref.files) - changed
    return 2 * changed >= base or len(ref.deltas) >= _DELTAS_FACTOR * after


def as_of(ref: StateRef, snapshot: LocalSnapshot | None) -> StateRef:
    """Return the version of a state that a local snapshot holds.

    A task takes the snapshot before it processes records, so the snapshot lacks the delta of its
    own micro-batch; that delta is kept beside the base made from the snapshot.
    """
    if snapshot is None or snapshot.version >= ref.version:
        return ref
    if ref.base_version is not None and ref.base_version > snapshot.version:
        return ref
    deltas = tuple(d for d in ref.deltas if d.version <= snapshot.version)
    return msgspec.structs.replace(ref, version=snapshot.version, deltas=deltas)
