"""The window operator: the rules of Flink's WindowOperator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.datastream.functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    RuntimeContext,
    WindowFunction,
)
from penstock.datastream.window.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    MergingWindowAssigner,
)
from penstock.datastream.window.operation import WindowOperation
from penstock.datastream.window.trigger import TriggerResult
from penstock.datastream.window.triggers import CountTrigger, EventTimeTrigger
from penstock.datastream.window.windows import MAX_LONG_VALUE
from penstock.errors import MethodCall
from penstock.state.keyed.states import KeyedStates
from penstock.state.window_encoding import encoding_for
from penstock.task.failure import fail, not_iterable
from penstock.task.time.timer_service import InternalTimerService
from penstock.task.window.contents import contents_of
from penstock.task.window.contexts import (
    AssignerContext,
    FiringContext,
    NoWindowState,
    SuffixedStateStore,
    TriggerContext,
)
from penstock.task.window.merging import IN_FLIGHT, Merge, MergingWindowSet

CONTINUE = TriggerResult.CONTINUE

LATE_RECORDS_DROPPED = "numLateRecordsDropped"
"""Flink's name of the counter."""


@dataclass(frozen=True, slots=True)
class WindowOperatorContext:
    """What a window operator works with in one micro-batch."""

    name: str
    operation: WindowOperation
    states: KeyedStates
    timers: InternalTimerService
    runtime_context: RuntimeContext
    out: Callable[[Any], None]
    has_late_output: bool
    """Whether the side output of late records is read."""


class WindowOperator:
    """The windows of the keys of one subtask, during one micro-batch.

    The current key is set from outside, for records and for timers.
    """

    def __init__(self, context: WindowOperatorContext) -> None:
        operation, timers = context.operation, context.timers
        record_time, runtime_context = timers.record_time, context.runtime_context
        metrics = runtime_context.get_metrics_group()
        self._name = context.name
        self._keyed = context.states
        self._record_time = record_time
        self._out = context.out
        self.operation = operation
        self._assigner = operation.assigner
        self._trigger = operation.trigger
        self._is_event_time = is_event_time = operation.assigner.is_event_time()
        self._register_cleanup, self._delete_cleanup = (
            (timers.register_event_time_timer, timers.delete_event_time_timer)
            if is_event_time
            else (timers.register_processing_time_timer, timers.delete_processing_time_timer)
        )
        self._lateness = operation.allowed_lateness
        self._late_tag = operation.late_tag
        self._has_late_output = context.has_late_output
        self._dropped = metrics.counter(LATE_RECORDS_DROPPED)
        self.encoding = encoding_for(operation.assigner.get_window_serializer())
        self.windows = context.states.per_window(self.encoding.name)
        self._fires_at_end = type(operation.trigger) is EventTimeTrigger
        """Whether the only timers are the window's end and the end of its lateness."""
        self._ends_by_firing = _ends_by_firing(operation)
        self._trigger_context = TriggerContext(timers, self.windows, metrics)
        self.contents = contents_of(operation, self.windows, self._trigger_context)
        self._assigner_context = AssignerContext(record_time, runtime_context)
        self._merges = isinstance(operation.assigner, MergingWindowAssigner)
        if self._merges:
            self._set_state = context.states.get_map_state(IN_FLIGHT)
        self._sets: dict[int, MergingWindowSet] = {}
        window_state = (
            NoWindowState() if self._merges else SuffixedStateStore(self.windows, "-per-window")
        )
        self._firing_context = FiringContext(timers, window_state, runtime_context)
        self._call = self._caller(operation.window_function)

    def process(self, value: Any) -> None:
        """Add a record to its windows; its timestamp is that of the record time."""
        timestamp = self._record_time.timestamp
        try:
            windows = self._assigner.assign_windows(value, timestamp, self._assigner_context)
            is_added = False
            for window in windows:
                is_added |= self.add(window, value, timestamp)
        except (Exception, SystemExit) as error:
            fail(self._name, value, error)
        if not is_added and self.is_record_late(timestamp):
            self.late(value)

    def add(self, window: Any, value: Any, timestamp: int) -> bool:
        """Add a record to a window; return False if the window is over."""
        if self._merges:
            in_flight = self.in_flight()
            window, namespace = in_flight.add(window, self.merge)
            if self._is_late(window):
                in_flight.retire(namespace)
                return False
            contents = in_flight.contents_of(namespace)
            assert contents is not None
        elif self._is_late(window):
            return False
        else:
            contents = namespace = self.encoding.encode(window)
        number, contents_number = self._enter(namespace, contents)
        states = self.windows
        states.current = contents_number
        self.contents.add(value, timestamp)
        states.current = number
        result = self._trigger.on_element(value, timestamp, window, self._trigger_context)
        if result is not CONTINUE:
            self._act(result, window, number, contents_number)
            if self._ends_by_firing:
                self._end(window, namespace, number, contents_number)
        self._set_cleanup(self._register_cleanup, window)
        return True

    def on_event_time(self, time: int, namespace: bytes) -> None:
        """Fire an event-time timer of a window of the current key."""
        trigger = self._at_end if self._fires_at_end else self._trigger.on_event_time
        self._on_timer(time, namespace, trigger, self._is_event_time)

    def on_processing_time(self, time: int, namespace: bytes) -> None:
        """Fire a processing-time timer of a window of the current key."""
        self._on_timer(time, namespace, self._trigger.on_processing_time, not self._is_event_time)

    def _on_timer(
        self,
        time: int,
        namespace: bytes,
        trigger: Callable[[int, Any, TriggerContext], TriggerResult],
        may_end: bool,
    ) -> None:
        contents: bytes | None = namespace
        if self._merges:
            contents = self.in_flight().contents_of(namespace)
        if contents is None:
            return  # the trigger did not delete its timer when the window was merged or over
        window = self.encoding.decode(namespace)
        try:
            number, contents_number = self._enter(namespace, contents)
            self.windows.current = number
            result = trigger(time, window, self._trigger_context)
            if result is not CONTINUE:
                self._act(result, window, number, contents_number)
            if may_end:
                self._end_or_continue(time, window, namespace, number, contents_number)
        except (Exception, SystemExit) as error:
            fail(self._name, self._called(window), error)

    def _end_or_continue(
        self, time: int, window: Any, namespace: bytes, number: int, contents_number: int
    ) -> None:
        """End a window whose time has come, else make sure that it ends at some time.

        A restored window has the timers that its program set, maybe with another allowed lateness:
        one of them may be the last, and earlier or later than the end of the window is now.
        """
        if time >= self.cleanup_time(window):
            self._end(window, namespace, number, contents_number)
        else:
            self._set_cleanup(self._register_cleanup, window)

    def in_flight(self) -> MergingWindowSet:
        """Return the in-flight windows of the current key."""
        key = self._keyed.current
        found = self._sets.get(key)
        if found is None:
            assert isinstance(self._assigner, MergingWindowAssigner)
            found = MergingWindowSet(self._assigner, self.encoding, self._set_state)
            self._sets[key] = found
        return found

    def merge(self, merge: Merge) -> None:
        """Merge windows of the current key."""
        number_of, states = self.windows.number_of, self.windows
        context, trigger = self._trigger_context, self._trigger
        gone = {n: window for n, window in merge.merged.items() if n != merge.namespace}
        context.merged = [number_of(namespace) for namespace in gone]
        context.namespace = merge.namespace
        states.current = number_of(merge.namespace)
        trigger.on_merge(merge.result, context)
        for context.namespace, window in gone.items():
            states.current = number_of(context.namespace)
            trigger.clear(window, context)
            self._set_cleanup(self._delete_cleanup, window)
        if merge.other_contents:
            others = [number_of(namespace) for namespace in merge.other_contents]
            self.contents.merge(number_of(merge.contents), others)

    def cleanup_time(self, window: Any) -> int:
        """Return when a window is over, its allowed lateness included."""
        end: int = window.max_timestamp()
        return min(end + self._lateness, MAX_LONG_VALUE) if self._is_event_time else end

    def late(self, value: Any) -> None:
        """Send a late record to its side output, or drop and count it."""
        if self._late_tag is None:
            self._dropped.inc()
        elif self._has_late_output:
            self._out((self._late_tag, value))

    def is_record_late(self, timestamp: int) -> bool:
        """Return whether a record that was added to no window is late."""
        return self._is_event_time and timestamp + self._lateness <= self._record_time.watermark

    def _is_late(self, window: Any) -> bool:
        return self._is_event_time and self.cleanup_time(window) <= self._record_time.watermark

    def _enter(self, namespace: bytes, contents: bytes) -> tuple[int, int]:
        """Make a window the current one; return its number and that of its contents."""
        self._trigger_context.namespace = namespace
        number = self.windows.number_of(namespace)
        same = contents is namespace or contents == namespace
        return number, number if same else self.windows.number_of(contents)

    def _act(self, result: TriggerResult, window: Any, number: int, contents_number: int) -> None:
        if result.is_fire():
            self._fire(window, number, contents_number)
        if result.is_purge():
            self.windows.current = contents_number
            self.contents.clear()

    def _fire(self, window: Any, number: int, contents_number: int) -> None:
        states, record_time, out = self.windows, self._record_time, self._out
        states.current = contents_number
        values = self.contents.values(window)
        if values is not None:
            states.current = number
            before, record_time.timestamp = record_time.timestamp, window.max_timestamp()
            results = None
            try:
                results = self._call(window, values)
                if results is not None:
                    for result in results:
                        out(result)
            except (Exception, SystemExit) as error:
                fail(self._name, self._called(window), not_iterable(error, results))
            record_time.timestamp = before
        states.current = contents_number
        self.contents.fired(window)

    @staticmethod
    def _at_end(time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else CONTINUE

    def _end(self, window: Any, namespace: bytes, number: int, contents_number: int) -> None:
        """Clear a window that is over."""
        states = self.windows
        states.current = contents_number
        self.contents.clear()
        states.current = number
        if not self._fires_at_end:  # else its only timer has fired by now
            self._trigger.clear(window, self._trigger_context)
        function = self.operation.window_function
        if isinstance(function, (ProcessWindowFunction, ProcessAllWindowFunction)):
            self._firing_context.current = window
            function.clear(self._firing_context)
        if self._merges:
            self.in_flight().retire(namespace)

    def _set_cleanup(self, change_timer: Callable[[int, bytes], None], window: Any) -> None:
        time = self.cleanup_time(window)
        if time != MAX_LONG_VALUE:
            change_timer(time, self._trigger_context.namespace)

    def _called(self, window: Any) -> MethodCall:
        key = f" of key {self._keyed.current_key()!r}" if self.operation.is_keyed else ""
        return MethodCall(f"{window!r}{key}")

    def _caller(self, function: Any) -> Callable[[Any, list[Any]], Iterable[Any] | None]:
        """Return what computes the results of a window from its contents."""
        context, key = self._firing_context, self._keyed.current_key
        match function:
            case WindowFunction():
                return lambda window, values: function.apply(key(), window, values)
            case AllWindowFunction():
                return lambda window, values: function.apply(window, values)
            case ProcessWindowFunction():

                def process(window: Any, values: list[Any]) -> Iterable[Any] | None:
                    context.current = window
                    return function.process(key(), context, values)

                return process
            case ProcessAllWindowFunction():

                def process_all(window: Any, values: list[Any]) -> Iterable[Any] | None:
                    context.current = window
                    return function.process(context, values)

                return process_all
        return lambda window, values: values


def _ends_by_firing(operation: WindowOperation) -> bool:
    """Return whether a window is over when it fires: count windows with their default trigger.

    They have no end in time, so nothing else would ever clear them.
    """
    assigner, trigger = operation.assigner, operation.trigger
    if (
        type(assigner) is CountTumblingWindowAssigner
        or type(assigner) is CountSlidingWindowAssigner
    ):
        return type(trigger) is CountTrigger and trigger._window_size == assigner._window_size
    return False
