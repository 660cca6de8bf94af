"""The story of one checkpoint: what happened when, and where."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

import msgspec

from penstock.ids import CheckpointId

__all__ = ["Story", "StoryEvent", "StoryLine"]


class StoryEvent(StrEnum):
    """What can happen to a checkpoint, roughly in the order it does."""

    TRIGGERED = "triggered"
    BARRIER_INJECTED = "barrier injected"
    BARRIER_SEEN = "barrier seen"
    SWITCHED = "switched to unaligned"
    INPUT_HELD = "input held"
    OVERTAKEN = "barrier overtook"
    SNAPSHOT_SYNC = "snapshot frozen"
    BARRIER_FORWARDED = "barrier forwarded"
    IN_FLIGHT_COMPLETE = "in-flight data complete"
    ACKNOWLEDGED = "acknowledged"
    COMPLETED = "completed"
    ABORTED = "aborted"


class StoryLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event; without a stage it happened at the coordinator."""

    time: float
    event: StoryEvent
    stage: str | None = None
    detail: str = ""


class Story:
    """The lines of one checkpoint; any thread may tell."""

    def __init__(self, checkpoint: CheckpointId, clock: Callable[[], float] = time.time) -> None:
        self.checkpoint = checkpoint
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: list[StoryLine] = []

    def tell(self, event: StoryEvent, stage: str | None = None, detail: str = "") -> None:
        """Add what happens now."""
        with self._lock:
            self._lines.append(StoryLine(self._clock(), event, stage, detail))

    def lines(self) -> list[StoryLine]:
        """Return what was told so far, in the order it was told."""
        with self._lock:
            return list(self._lines)
