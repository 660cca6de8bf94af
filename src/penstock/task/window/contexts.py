"""The contexts of triggers, assigners, evictors and window functions."""
# ruff: noqa: D102 - the abstract contexts document the methods

from __future__ import annotations

from copy import copy
from typing import Any, NoReturn

from penstock.datastream.functions import KeyedStateStore, RuntimeContext
from penstock.datastream.metrics import MetricGroup
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.timerservice import TimerService
from penstock.datastream.window.assigners import WindowAssigner
from penstock.datastream.window.evictors import Evictor
from penstock.datastream.window.trigger import Trigger
from penstock.datastream.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from penstock.errors import InvalidJobError
from penstock.state.keyed.aggregating_state import KeyedAggregatingState
from penstock.state.keyed.list_state import KeyedListState
from penstock.state.keyed.reducing_state import KeyedReducingState
from penstock.state.keyed.states import KeyedStates, WindowStates
from penstock.task.operators.contexts import ClockContext, StateGetters
from penstock.task.time.timer_service import InternalTimerService, RecordTime

_GETTERS: dict[type[StateDescriptor], str] = {
    ReducingStateDescriptor: "get_reducing_state",
    AggregatingStateDescriptor: "get_aggregating_state",
    ListStateDescriptor: "get_list_state",
    MapStateDescriptor: "get_map_state",
    ValueStateDescriptor: "get_state",
}


class SuffixedStateStore(StateGetters, KeyedStateStore):
    """A state store that adds a suffix to the names of states, so that they never clash.

    A state is cached by its descriptor, which most functions pass with every call.
    """

    def __init__(self, states: KeyedStates, suffix: str) -> None:
        self._states = states
        self._suffix = suffix
        self._known: dict[str, tuple[StateDescriptor, Any]] = {}

    def get(self, descriptor: StateDescriptor) -> Any:
        """Return the state of a descriptor of any kind."""
        for kind, method in _GETTERS.items():
            if isinstance(descriptor, kind):
                return self._get_state(method, descriptor)
        message = f"a state is asked for by a descriptor, not by {descriptor!r}"
        raise InvalidJobError(message)

    def _get_state(self, method: str, descriptor: StateDescriptor) -> Any:
        known, state = self._known.get(descriptor.name, (None, None))
        if known is not descriptor:
            named = copy(descriptor)
            named.name += self._suffix
            state = getattr(self._states, method)(named)
            self._known[descriptor.name] = descriptor, state
        return state


class NoWindowState(KeyedStateStore):
    """Refuses state per window where windows merge: there is no rule for merging it."""

    def _refuse(self, state_descriptor: Any) -> NoReturn:
        message = (
            "state per window is not possible with windows that merge, as sessions do: "
            "use global_state()"
        )
        raise InvalidJobError(message)

    get_state = get_list_state = get_map_state = _refuse
    get_reducing_state = get_aggregating_state = get_raw_state = _refuse


class TriggerContext(Trigger.OnMergeContext, Evictor.EvictorContext):
    """The context of triggers and evictors for the current window."""

    def __init__(
        self, timers: InternalTimerService, states: WindowStates, metrics: MetricGroup
    ) -> None:
        self.namespace = b""
        """The bytes of the current window."""
        self.merged: list[int] = []
        """The numbers of the windows that were merged into the current one."""
        self._timers = timers
        self._states = states
        self._store = SuffixedStateStore(states, "-of-trigger")
        self._metrics = metrics

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def get_metric_group(self) -> MetricGroup:
        return self._metrics

    def get_current_watermark(self) -> int:
        return self._timers.current_watermark()

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register_processing_time_timer(time, self.namespace)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register_event_time_timer(time, self.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete_processing_time_timer(time, self.namespace)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete_event_time_timer(time, self.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._store.get(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = self._store.get(state_descriptor)
        mergeable = (KeyedReducingState, KeyedAggregatingState, KeyedListState)
        if not isinstance(state, mergeable) or state.ttl is not None:
            message = (
                f"state {state_descriptor.name!r} cannot be merged: use a list, reducing or "
                "aggregating state"
            )
            raise InvalidJobError(message)
        current = self._states.current
        state.merge(current, self.merged)
        self._states.current = current


class AssignerContext(WindowAssigner.WindowAssignerContext):
    """The context of a window assigner."""

    def __init__(self, record_time: RecordTime, runtime_context: RuntimeContext) -> None:
        self._record_time = record_time
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._record_time.now()

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class FiringContext(
    ClockContext, ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]
):
    """The context of a window function when its window fires or is cleared."""

    def __init__(
        self, service: TimerService, window_state: KeyedStateStore, global_state: KeyedStateStore
    ) -> None:
        self.current: Any = None
        self._service = service
        self._window_state = window_state
        self._global_state = global_state

    def window(self) -> Any:
        return self.current

    def window_state(self) -> KeyedStateStore:
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        return self._global_state
