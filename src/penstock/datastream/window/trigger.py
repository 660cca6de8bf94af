"""The contract of triggers: when a window gives its results.

A trigger is one object for all keys and windows: what it has to remember goes into the state that
its context gives it.
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
    """What becomes of a window: whether it gives its results, and whether it is emptied."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Tell whether the window gives its results."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Tell whether what the window holds is forgotten."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when a window gives its results.

    With windows that merge, `can_merge` must be true and `on_merge` see to timers and state.
    """

    class TriggerContext(ABC):
        """What a trigger may know, register and remember for the key and window at hand."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return this machine's time in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the metrics of the step."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Ask for `on_processing_time` when the machine's time has passed `time`."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Ask for `on_event_time` when the watermark has passed `time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Take such a wish back."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Take such a wish back."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return a state of the key and window at hand."""

    class OnMergeContext(TriggerContext):
        """What `on_merge` is given."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Put the state of the windows that became one together in the new one."""

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Decide when a record has been added to the window."""

    @abstractmethod
    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Decide when a processing-time timer of the window is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Decide when an event-time timer of the window is due."""

    def can_merge(self) -> bool:
        """Tell whether it can be used with windows that merge."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """See to timers and state when several windows have become `window`."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Remove timers and state of a window that is over."""
