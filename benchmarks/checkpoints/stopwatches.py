"""Seconds spent in the parts of a checkpoint that the driver runs or waits for.

Methods are wrapped while the context is open; what they do stays the same. Parts that run beside
each other in several threads add up.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from penstock.checkpoint.coordinator.stats_tracker import CheckpointStatsTracker
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpointStore
from penstock.checkpoint.storage.journal import Journal
from penstock.job.snapshot.stage_state import StageState
from penstock.spark.submit.submitter import SparkSubmitter
from penstock.state.backends.base import StateBackend

FREEZE = "freeze"
UPLOAD = "upload"
FOLD = "compact"
SYNC = "fsync"
VERIFY = "read back"
METADATA = "metadata"
JOURNAL = "journal"
DELETE = "delete old files"
RECORD = "record"

_METHODS: tuple[tuple[type, str, str], ...] = (
    (StageState, "freeze", FREEZE),
    (StateBackend, "sync", SYNC),
    (StateBackend, "verify", VERIFY),
    (CompletedCheckpointStore, "write", METADATA),
    (CheckpointStatsTracker, "_write", RECORD),
    (Journal, "append", JOURNAL),
    (SharedStateRegistry, "_delete", DELETE),
)


class Stopwatches:
    """Sums by part, since the last `take`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}
        self._undo: list[Callable[[], None]] = []

    def take(self) -> dict[str, float]:
        """Return the sums, and begin again."""
        with self._lock:
            taken, self._seconds = self._seconds, {}
        return taken

    def __enter__(self) -> Self:
        for owner, method, part in _METHODS:
            self._wrap(owner, method, lambda *_, part=part: part)
        # A job of Spark's for every subtask; its purpose is the second argument.
        self._wrap(SparkSubmitter, "run_per_subtask", lambda _stage, purpose, *_: str(purpose))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for undo in self._undo:
            undo()

    def _wrap(self, owner: type, method: str, part_of: Callable[..., str]) -> None:
        original = getattr(owner, method)

        @functools.wraps(original)
        def timed(this: Any, *given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(this, *given, **named)
            finally:
                self._add(part_of(*given), time.perf_counter() - began)

        setattr(owner, method, timed)
        self._undo.append(lambda: setattr(owner, method, original))

    def _add(self, part: str, seconds: float) -> None:
        with self._lock:
            self._seconds[part] = self._seconds.get(part, 0.0) + seconds
