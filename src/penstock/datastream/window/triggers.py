"""The built-in triggers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from penstock.common.time import Time
from penstock.common.typeinfo import TypeInformation, Types
from penstock.datastream.state import (
    ReducingState,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window.delta import DeltaFunction
from penstock.datastream.window.trigger import Trigger, TriggerResult
from penstock.datastream.window.windows import Window
from penstock.errors import InvalidJobError

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "DeltaTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class _PassiveTrigger(Trigger[Any, Window]):
    """Does nothing; the other triggers override what they need."""

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        pass


class EventTimeTrigger(_PassiveTrigger):
    """Fires when the watermark passes the end of the window, and for each late record after it."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Create the trigger."""
        return EventTimeTrigger()

    def on_element(  # noqa: D102
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(  # noqa: D102
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        is_end = time == window.max_timestamp()
        return TriggerResult.FIRE if is_end else TriggerResult.CONTINUE

    def can_merge(self) -> bool:  # noqa: D102
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:  # noqa: D102
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:  # noqa: D102
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_PassiveTrigger):
    """Fires when processing time passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Create the trigger."""
        return ProcessingTimeTrigger()

    def on_element(  # noqa: D102
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(  # noqa: D102
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:  # noqa: D102
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:  # noqa: D102
        # The end may have passed while the merge waited for its micro-batch: the timer is due then.
        ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:  # noqa: D102
        ctx.delete_processing_time_timer(window.max_timestamp())


class _ContinuousTrigger(_PassiveTrigger):
    """Fires at every interval; the next time to fire is kept per window."""

    def __init__(self, interval: int) -> None:
        if interval <= 0:
            message = f"{type(self).__name__} needs an interval above 0; got {interval}"
            raise InvalidJobError(message)
        self.interval = interval
        self.state_desc = ReducingStateDescriptor("fire-time", min, Types.LONG())

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.state_desc)
        time = self._next_fire(ctx).get()
        if time is not None:
            self._register(ctx, time)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        next_fire = self._next_fire(ctx)
        time = next_fire.get()
        if time is not None:
            self._delete(ctx, time)
            next_fire.clear()

    def register_next_fire_timestamp(
        self,
        time: int,
        window: Window,
        ctx: Trigger.TriggerContext,
        fire_timestamp_state: ReducingState[int],
    ) -> None:
        """Register the next timer after a time."""
        following = min(time + self.interval, window.max_timestamp())
        fire_timestamp_state.add(following)
        self._register(ctx, following)

    def _begin(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Register the first timer of a window, on the interval that a time lies in."""
        next_fire = self._next_fire(ctx)
        if next_fire.get() is None:
            begin = time - time % self.interval
            self.register_next_fire_timestamp(begin, window, ctx, next_fire)
        return TriggerResult.CONTINUE

    def _fire(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        next_fire = self._next_fire(ctx)
        if next_fire.get() != time:
            return TriggerResult.CONTINUE
        next_fire.clear()
        self.register_next_fire_timestamp(time, window, ctx, next_fire)
        return TriggerResult.FIRE

    def _next_fire(self, ctx: Trigger.TriggerContext) -> ReducingState[int]:
        state: ReducingState[int] = ctx.get_partitioned_state(self.state_desc)
        return state

    @abstractmethod
    def _register(self, ctx: Trigger.TriggerContext, time: int) -> None: ...

    @abstractmethod
    def _delete(self, ctx: Trigger.TriggerContext, time: int) -> None: ...


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires at every interval of event time, and at the end of the window."""

    @staticmethod
    def of(interval: Time) -> ContinuousEventTimeTrigger:
        """Create the trigger."""
        return ContinuousEventTimeTrigger(interval.to_milliseconds())

    def on_element(  # noqa: D102
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return self._begin(timestamp, window, ctx)

    def on_event_time(  # noqa: D102
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        return self._fire(time, window, ctx)

    def _register(self, ctx: Trigger.TriggerContext, time: int) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, ctx: Trigger.TriggerContext, time: int) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires at every interval of processing time."""

    @staticmethod
    def of(interval: Time) -> ContinuousProcessingTimeTrigger:
        """Create the trigger."""
        return ContinuousProcessingTimeTrigger(interval.to_milliseconds())

    def on_element(  # noqa: D102
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return self._begin(ctx.get_current_processing_time(), window, ctx)

    def on_processing_time(  # noqa: D102
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return self._fire(time, window, ctx)

    def _register(self, ctx: Trigger.TriggerContext, time: int) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, ctx: Trigger.TriggerContext, time: int) -> None:
        ctx.delete_processing_time_timer(time)


class CountTrigger(_PassiveTrigger):
    """Fires at every `window_size` records of the window."""

    def __init__(self, window_size: int) -> None:
        self._window_size = window_size
        self._count_state_descriptor = ReducingStateDescriptor("count", _sum, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Create the trigger."""
        return CountTrigger(window_size)

    def on_element(  # noqa: D102
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        count = ctx.get_partitioned_state(self._count_state_descriptor)
        count.add(1)
        if count.get() < self._window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:  # noqa: D102
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:  # noqa: D102
        ctx.merge_partitioned_state(self._count_state_descriptor)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:  # noqa: D102
        ctx.get_partitioned_state(self._count_state_descriptor).clear()


class DeltaTrigger(_PassiveTrigger):
    """Fires when a record is further than a threshold from the last one that fired.

    From Flink's Java API, not in PyFlink.
    """

    def __init__(
        self,
        threshold: float,
        delta_function: DeltaFunction[Any],
        type_info: TypeInformation | None = None,
    ) -> None:
        self._threshold = threshold
        self._delta_function = delta_function
        self._last = ValueStateDescriptor("last-element", type_info)

    @staticmethod
    def of(
        threshold: float,
        delta_function: DeltaFunction[Any],
        type_info: TypeInformation | None = None,
    ) -> DeltaTrigger:
        """Create the trigger; `type_info` is the type of the records it remembers."""
        return DeltaTrigger(threshold, delta_function, type_info)

    def on_element(  # noqa: D102
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        last = ctx.get_partitioned_state(self._last)
        before = last.value()
        if before is None:
            last.update(element)
        elif self._delta_function.get_delta(before, element) > self._threshold:
            last.update(element)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:  # noqa: D102
        ctx.get_partitioned_state(self._last).clear()


class NeverTrigger(_PassiveTrigger):
    """Never fires: the default of the global window."""


class PurgingTrigger(Trigger[T, W]):
    """Purges the window whenever the nested trigger fires."""

    def __init__(self, nested_trigger: Trigger[T, W]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[T, W]) -> PurgingTrigger[T, W]:
        """Create the trigger."""
        return PurgingTrigger(nested_trigger)

    def on_element(  # noqa: D102
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(  # noqa: D102
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(  # noqa: D102
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:  # noqa: D102
        return self.nested_trigger.can_merge()

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:  # noqa: D102
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:  # noqa: D102
        self.nested_trigger.clear(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


def _sum(first: int, second: int) -> int:
    return first + second
