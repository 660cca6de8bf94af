"""The windowed step, record by record and timer by timer: the rules of Flink's WindowOperator."""

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
from penstock.errors import Called
from penstock.state.keyed import KeyedStates
from penstock.state.window_bytes import encoding_for
from penstock.task.failure import StepFailed, fail, not_iterable
from penstock.task.moment import Moment
from penstock.task.window.contents import contents_of
from penstock.task.window.contexts import (
    AssignerContext,
    FiringContext,
    NamedApart,
    NoWindowState,
    TriggerContext,
    WindowTimers,
)
from penstock.task.window.merging import IN_FLIGHT, Merge, MergingWindowSet

__all__ = ["WindowOperator", "WindowParts"]

CONTINUE = TriggerResult.CONTINUE

LATE_RECORDS_DROPPED = "numLateRecordsDropped"
"""Flink's name of the counter."""


@dataclass(frozen=True, slots=True)
class WindowParts:
    """What a windowed step works with in one micro-batch."""

    name: str
    operation: WindowOperation
    states: KeyedStates
    timers: WindowTimers
    moment: Moment
    runtime_context: RuntimeContext
    out: Callable[[Any], None]
    late_is_taken: bool
    """Whether somebody takes the side output of late records."""


class WindowOperator:
    """The windows of the keys of one subtask, during one micro-batch.

    The current key is set from outside, for records and for timers.
    """

    def __init__(self, parts: WindowParts) -> None:
        operation, moment = parts.operation, parts.moment
        self._name = parts.name
        self._keyed = parts.states
        self._timers = parts.timers
        self._moment = moment
        self._out = parts.out
        self.operation = operation
        self._assigner = operation.assigner
        self._trigger = operation.trigger
        self._is_event_time = operation.assigner.is_event_time()
        self._lateness = operation.allowed_lateness
        self._late_tag = operation.late_tag
        self._late_is_taken = parts.late_is_taken
        self._dropped = parts.runtime_context.get_metrics_group().counter(LATE_RECORDS_DROPPED)
        self.encoding = encoding_for(operation.assigner.get_window_serializer())
        self.windows = parts.states.per_window(self.encoding.name)
        metrics = parts.runtime_context.get_metrics_group()
        self._fires_at_end = type(operation.trigger) is EventTimeTrigger
        """Whether a timer can only be the window's end or the end of its lateness."""
        self._ends_by_firing = _is_full_when_it_fires(operation)
        self._trigger_context = TriggerContext(moment, parts.timers, self.windows, metrics)
        self.contents = contents_of(operation, self.windows, self._trigger_context)
        self._assigner_context = AssignerContext(moment, parts.runtime_context)
        self._merges = isinstance(operation.assigner, MergingWindowAssigner)
        if self._merges:
            self._set_state = parts.states.get_map_state(IN_FLIGHT)
        self._sets: dict[int, MergingWindowSet] = {}
        window_state = NoWindowState() if self._merges else NamedApart(self.windows, "-per-window")
        self._firing_context = FiringContext(moment, window_state, parts.runtime_context)
        self._call = self._caller(operation.window_function)

    def process(self, value: Any) -> None:
        """Put a record into its windows; its time is the moment's."""
        timestamp = self._moment.timestamp
        try:
            windows = self._assigner.assign_windows(value, timestamp, self._assigner_context)
            taken = False
            for window in windows:
                taken |= self.add(window, value, timestamp)
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._name, value, error)
        if not taken and self.is_record_late(timestamp):
            self.late(value)

    def add(self, window: Any, value: Any, timestamp: int) -> bool:
        """Put a record into a window; tell whether the window was not over yet."""
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
        self._register_cleanup(window)
        return True

    def on_event_time(self, time: int, namespace: bytes) -> None:
        """Let an event-time timer of a window of the current key fire."""
        ask = self._at_end if self._fires_at_end else self._trigger.on_event_time
        self._on_timer(time, namespace, ask, self._is_event_time)

    def on_processing_time(self, time: int, namespace: bytes) -> None:
        """Let a processing-time timer of a window of the current key fire."""
        self._on_timer(time, namespace, self._trigger.on_processing_time, not self._is_event_time)

    def _on_timer(
        self,
        time: int,
        namespace: bytes,
        ask: Callable[[int, Any, TriggerContext], TriggerResult],
        may_end: bool,
    ) -> None:
        contents: bytes | None = namespace
        if self._merges:
            contents = self.in_flight().contents_of(namespace)
        if contents is None:
            return  # a trigger left its timer behind when the window was merged or over
        window = self.encoding.decode(namespace)
        try:
            number, contents_number = self._enter(namespace, contents)
            self.windows.current = number
            result = ask(time, window, self._trigger_context)
            if result is not CONTINUE:
                self._act(result, window, number, contents_number)
            if may_end and time == self.cleanup_time(window):
                self._end(window, namespace, number, contents_number)
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._name, self._called(window), error)

    def in_flight(self) -> MergingWindowSet:
        """Return the windows in flight of the current key."""
        key = self._keyed.current
        found = self._sets.get(key)
        if found is None:
            assert isinstance(self._assigner, MergingWindowAssigner)
            found = MergingWindowSet(self._assigner, self.encoding, self._set_state)
            self._sets[key] = found
        return found

    def merge(self, merge: Merge) -> None:
        """Let windows of the current key become one."""
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
            self._delete_cleanup(window)
        if merge.other_contents:
            others = [number_of(namespace) for namespace in merge.other_contents]
            self.contents.merge(number_of(merge.contents), others)

    def cleanup_time(self, window: Any) -> int:
        """Return when a window is over, lateness and all."""
        end: int = window.max_timestamp()
        return min(end + self._lateness, MAX_LONG_VALUE) if self._is_event_time else end

    def late(self, value: Any) -> None:
        """Do with a record what is done with those that come too late."""
        if self._late_tag is None:
            self._dropped.inc()
        elif self._late_is_taken:
            self._out((self._late_tag, value))

    def is_record_late(self, timestamp: int) -> bool:
        """Tell whether a record that no window took came too late."""
        return self._is_event_time and timestamp + self._lateness <= self._moment.watermark

    def _is_late(self, window: Any) -> bool:
        return self._is_event_time and self.cleanup_time(window) <= self._moment.watermark

    def _enter(self, namespace: bytes, contents: bytes) -> tuple[int, int]:
        """Make a window the one at hand; return its number and that of its contents."""
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
        states, moment, out = self.windows, self._moment, self._out
        states.current = contents_number
        given = self.contents.given(window)
        if given is not None:
            states.current = number
            before, moment.timestamp = moment.timestamp, window.max_timestamp()
            results = None
            try:
                results = self._call(window, given)
                if results is not None:
                    for result in results:
                        out(result)
            except StepFailed:
                raise
            except (Exception, SystemExit) as error:
                fail(self._name, self._called(window), not_iterable(error, results))
            moment.timestamp = before
        states.current = contents_number
        self.contents.has_given(window)

    @staticmethod
    def _at_end(time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else CONTINUE

    def _end(self, window: Any, namespace: bytes, number: int, contents_number: int) -> None:
        """Forget a window that is over."""
        states = self.windows
        states.current = contents_number
        self.contents.clear()
        states.current = number
        if not self._fires_at_end:  # its timer, the only thing it had, has fired by now
            self._trigger.clear(window, self._trigger_context)
        function = self.operation.window_function
        if isinstance(function, (ProcessWindowFunction, ProcessAllWindowFunction)):
            self._firing_context.current = window
            function.clear(self._firing_context)
        if self._merges:
            self.in_flight().retire(namespace)

    def _register_cleanup(self, window: Any) -> None:
        time = self.cleanup_time(window)
        if time == MAX_LONG_VALUE:
            return
        if self._is_event_time:
            self._timers.register_event(time, self._trigger_context.namespace)
        else:
            self._timers.register_processing(time, self._trigger_context.namespace)

    def _delete_cleanup(self, window: Any) -> None:
        time = self.cleanup_time(window)
        if time == MAX_LONG_VALUE:
            return
        if self._is_event_time:
            self._timers.delete_event(time, self._trigger_context.namespace)
        else:
            self._timers.delete_processing(time, self._trigger_context.namespace)

    def _called(self, window: Any) -> Called:
        key = f" of key {self._keyed.current_key()!r}" if self.operation.is_keyed else ""
        return Called(f"{window!r}{key}")

    def _caller(self, function: Any) -> Callable[[Any, list[Any]], Iterable[Any] | None]:
        """Return what makes results of a window's contents."""
        context, key = self._firing_context, self._keyed.current_key
        if isinstance(function, WindowFunction):
            return lambda window, given: function.apply(key(), window, given)
        if isinstance(function, AllWindowFunction):
            return lambda window, given: function.apply(window, given)
        if isinstance(function, ProcessWindowFunction):

            def process(window: Any, given: list[Any]) -> Iterable[Any] | None:
                context.current = window
                return function.process(key(), context, given)

            return process
        if isinstance(function, ProcessAllWindowFunction):

            def process_all(window: Any, given: list[Any]) -> Iterable[Any] | None:
                context.current = window
                return function.process(context, given)

            return process_all
        return lambda window, given: given


def _is_full_when_it_fires(operation: WindowOperation) -> bool:
    """Tell whether a window fires with its last record: windows of a number, by their default.

    No time ends them, so nothing else would ever take them away.
    """
    assigner, trigger = operation.assigner, operation.trigger
    if (
        type(assigner) is CountTumblingWindowAssigner
        or type(assigner) is CountSlidingWindowAssigner
    ):
        return type(trigger) is CountTrigger and trigger._window_size == assigner._window_size
    return False
