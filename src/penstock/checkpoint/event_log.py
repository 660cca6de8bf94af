"""The event log of one checkpoint: what happened when, and at which stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

import msgspec

from penstock.ids import CheckpointId


class CheckpointEvent(StrEnum):
    """What can happen to a checkpoint, roughly in this order; the values are persisted."""

    TRIGGERED = "triggered"
    BARRIER_INJECTED = "barrier injected"
    BARRIER_SEEN = "barrier seen"
    SWITCHED = "switched to unaligned"
    INPUT_BLOCKED = "input held"
    OVERTAKEN = "barrier overtook"
    SNAPSHOT_SYNC = "snapshot frozen"
    BARRIER_FORWARDED = "barrier forwarded"
    IN_FLIGHT_COMPLETE = "in-flight data complete"
    ACKNOWLEDGED = "acknowledged"
    COMPLETED = "completed"
    ABORTED = "aborted"

    @property
    def label(self) -> str:
        """The name to show: one stored value is older than its name."""
        return "input blocked" if self is CheckpointEvent.INPUT_BLOCKED else self.value


class CheckpointEventRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event; without a stage it happened at the coordinator."""

    time: float
    event: CheckpointEvent
    stage: str | None = None
    detail: str = ""


class CheckpointEventLog:
    """The events of one checkpoint; region loops, executors and the coordinator add to it."""

    def __init__(self, checkpoint: CheckpointId, clock: Callable[[], float] = time.time) -> None:
        self.checkpoint = checkpoint
        self._clock = clock
        self._lock = threading.Lock()
        self._records: list[CheckpointEventRecord] = []

    def record(self, event: CheckpointEvent, stage: str | None = None, detail: str = "") -> None:
        """Add an event that happens now."""
        with self._lock:
            self._records.append(CheckpointEventRecord(self._clock(), event, stage, detail))

    def records(self) -> list[CheckpointEventRecord]:
        """Return the events so far, in the order they were recorded."""
        with self._lock:
            return list(self._records)
