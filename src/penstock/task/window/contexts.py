"""What triggers, assigners, evictors and window functions see of the window at hand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, NoReturn, Protocol, TypeVar

from penstock.datastream.functions import KeyedStateStore, RuntimeContext
from penstock.datastream.metrics import MetricGroup
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window.assigners import WindowAssigner
from penstock.datastream.window.evictors import Evictor
from penstock.datastream.window.trigger import Trigger
from penstock.datastream.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from penstock.errors import InvalidJobError
from penstock.state.aggregating_state import KeyedAggregatingState
from penstock.state.keyed import KeyedStates, WindowStates
from penstock.state.list_state import KeyedListState
from penstock.state.reducing_state import KeyedReducingState
from penstock.task.moment import Moment

__all__ = ["AssignerContext", "FiringContext", "TriggerContext", "WindowTimers"]

D = TypeVar("D", bound=StateDescriptor)


class WindowTimers(Protocol):
    """Timers of the current key, each with the bytes of its window."""

    @abstractmethod
    def register_event(self, time: int, namespace: bytes) -> None:
        """Set an event-time timer."""

    @abstractmethod
    def register_processing(self, time: int, namespace: bytes) -> None:
        """Set a processing-time timer."""

    @abstractmethod
    def delete_event(self, time: int, namespace: bytes) -> None:
        """Delete an event-time timer."""

    @abstractmethod
    def delete_processing(self, time: int, namespace: bytes) -> None:
        """Delete a processing-time timer."""


class NamedApart(KeyedStateStore):
    """States of a scope under names of their own, so that nobody meets another's by chance.

    A state is found again by its descriptor, which most functions ask with every time.
    """

    def __init__(self, states: KeyedStates, suffix: str) -> None:
        self._states = states
        self._suffix = suffix
        self._known: dict[str, tuple[StateDescriptor, Any]] = {}

    def get(self, descriptor: StateDescriptor) -> Any:
        """Return the state that a descriptor of any kind names."""
        match descriptor:
            case ReducingStateDescriptor():
                return self.get_reducing_state(descriptor)
            case AggregatingStateDescriptor():
                return self.get_aggregating_state(descriptor)
            case ListStateDescriptor():
                return self.get_list_state(descriptor)
            case MapStateDescriptor():
                return self.get_map_state(descriptor)
            case ValueStateDescriptor():
                return self.get_state(descriptor)
        message = f"a state is asked for by a descriptor, not by {descriptor!r}"
        raise InvalidJobError(message)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> Any:
        """Return a value."""
        return self._find(state_descriptor, self._states.get_state)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        """Return a list."""
        return self._find(state_descriptor, self._states.get_list_state)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> Any:
        """Return a map."""
        return self._find(state_descriptor, self._states.get_map_state)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> Any:
        """Return a folded value."""
        return self._find(state_descriptor, self._states.get_reducing_state)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> Any:
        """Return an accumulator."""
        return self._find(state_descriptor, self._states.get_aggregating_state)

    def get_raw_state(self, state_descriptor: RawStateDescriptor) -> Any:
        """Return bytes."""
        return self._find(state_descriptor, self._states.get_raw_state)

    def _find(self, descriptor: D, ask: Callable[[D], Any]) -> Any:
        known, state = self._known.get(descriptor.name, (None, None))
        if known is not descriptor:
            named = copy(descriptor)
            named.name += self._suffix
            state = ask(named)
            self._known[descriptor.name] = descriptor, state
        return state


class NoWindowState(KeyedStateStore):
    """Refuses state per window where windows merge: nobody could say which of theirs stays."""

    def _refuse(self, state_descriptor: Any) -> NoReturn:
        message = (
            "state per window is not possible with windows that merge, as sessions do: "
            "use global_state()"
        )
        raise InvalidJobError(message)

    get_state = get_list_state = get_map_state = _refuse
    get_reducing_state = get_aggregating_state = get_raw_state = _refuse


class TriggerContext(Trigger.OnMergeContext, Evictor.EvictorContext):
    """The window that a trigger or an evictor is asked about."""

    def __init__(
        self,
        moment: Moment,
        timers: WindowTimers,
        states: WindowStates,
        metrics: MetricGroup,
    ) -> None:
        self.namespace = b""
        """The bytes of the window at hand."""
        self.merged: list[int] = []
        """The numbers of the windows that became the one at hand."""
        self._moment = moment
        self._timers = timers
        self._states = states
        self._named = NamedApart(states, "-of-trigger")
        self._metrics = metrics

    def get_current_processing_time(self) -> int:
        """Return processing time."""
        return self._moment.now()

    def get_metric_group(self) -> MetricGroup:
        """Return the metrics of the step."""
        return self._metrics

    def get_current_watermark(self) -> int:
        """Return the watermark."""
        return self._moment.watermark

    def register_processing_time_timer(self, time: int) -> None:
        """Set a timer of the window."""
        self._timers.register_processing(time, self.namespace)

    def register_event_time_timer(self, time: int) -> None:
        """Set a timer of the window."""
        self._timers.register_event(time, self.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete a timer of the window."""
        self._timers.delete_processing(time, self.namespace)

    def delete_event_time_timer(self, time: int) -> None:
        """Delete a timer of the window."""
        self._timers.delete_event(time, self.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        """Return a state of the window."""
        return self._named.get(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Bring the state of the windows that became this one here."""
        state = self._named.get(state_descriptor)
        if not isinstance(state, (KeyedReducingState, KeyedAggregatingState, KeyedListState)):
            message = (
                f"state {state_descriptor.name!r} cannot be merged: use a list, reducing or "
                "aggregating state"
            )
            raise InvalidJobError(message)
        current = self._states.current
        state.merge(current, self.merged)
        self._states.current = current


class AssignerContext(WindowAssigner.WindowAssignerContext):
    """What an assigner may know beside the record."""

    def __init__(self, moment: Moment, runtime_context: RuntimeContext) -> None:
        self._moment = moment
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        """Return processing time."""
        return self._moment.now()

    def get_runtime_context(self) -> RuntimeContext:
        """Return the step's context."""
        return self._runtime_context


class FiringContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The window whose function is called."""

    def __init__(
        self, moment: Moment, window_state: KeyedStateStore, global_state: KeyedStateStore
    ) -> None:
        self.current: Any = None
        self._moment = moment
        self._window_state = window_state
        self._global_state = global_state

    def window(self) -> Any:
        """Return the window."""
        return self.current

    def current_processing_time(self) -> int:
        """Return processing time."""
        return self._moment.now()

    def current_watermark(self) -> int:
        """Return the watermark."""
        return self._moment.watermark

    def window_state(self) -> KeyedStateStore:
        """Return the state of the key and window."""
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        """Return the state of the key."""
        return self._global_state
