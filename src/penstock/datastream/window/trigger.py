"""The contract of triggers, which decide when a window fires.

A trigger is one object for all keys and windows: it keeps data in the state of its context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.datastream.metrics import MetricGroup
from penstock.datastream.state import StateDescriptor
from penstock.datastream.window.windows import Window

__all__ = ["Trigger", "TriggerResult"]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """The decision of a trigger: whether the window fires, and whether it is purged."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Tell whether the window fires."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Tell whether the window is purged."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when a window fires.

    For windows that are merged, `can_merge` must be true and `on_merge` handle timers and state.
    """

    class TriggerContext(ABC):
        """Gives a trigger time, timers and state of the current key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the metrics of the step."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Register a call of `on_processing_time`."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Register a call of `on_event_time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete a processing-time timer."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete an event-time timer."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return a state of the current key and window."""

    class OnMergeContext(TriggerContext):
        """The context of `on_merge`."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the merged windows into that of the new one."""

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Called when a record was added to the window."""

    @abstractmethod
    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Called when a processing-time timer of the window fires."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when an event-time timer of the window fires."""

    def can_merge(self) -> bool:
        """Tell whether it supports windows that are merged."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Called when several windows were merged into `window`, to merge timers and state."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Remove timers and state of a window that is purged for good."""
