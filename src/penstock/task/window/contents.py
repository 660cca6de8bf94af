"""The contents of windows: what is kept of their records until they fire."""
# ruff: noqa: D102 - `WindowContents` documents the methods

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from penstock.common.typeinfo import Types
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
)
from penstock.datastream.window.evictors import Evictor, TimestampedValue
from penstock.datastream.window.operation import WINDOW_CONTENTS, WindowOperation
from penstock.state.keyed.states import WindowStates


class WindowContents(ABC):
    """The contents of the window that is current in the window states."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def add(self, value: Any, timestamp: int) -> None:
        """Add a record."""
        self._state.add(value)

    @abstractmethod
    def values(self, window: Any) -> list[Any] | None:
        """Return the input of the window function; None if the window is empty."""

    def fired(self, window: Any) -> None:  # noqa: B027
        """Called when the window function has processed the values."""

    def clear(self) -> None:
        """Remove everything."""
        self._state.clear()

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Merge the contents of some windows into those of another, all by number."""
        self._state.merge(target, sources)


class AggregatedContents(WindowContents):
    """One value, aggregated as records are added."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.add_all: Callable[[Iterable[Any]], bool] = state.add_all
        """Adds many records with one state access; returns whether the window was empty."""

    def values(self, window: Any) -> list[Any] | None:
        value = self._state.get()
        return None if value is None else [value]


class ListContents(WindowContents):
    """All records in a list."""

    def values(self, window: Any) -> list[Any] | None:
        return self._state.get() or None


class EvictingContents(WindowContents):
    """All records with their timestamps; an evictor removes some when the window fires."""

    def __init__(
        self,
        state: Any,
        evictor: Evictor[Any, Any],
        context: Evictor.EvictorContext,
        aggregate: Callable[[list[Any]], list[Any] | None],
    ) -> None:
        super().__init__(state)
        self._evictor = evictor
        self._context = context
        self._aggregate = aggregate
        self._elements: list[TimestampedValue] = []

    def add(self, value: Any, timestamp: int) -> None:
        self._state.add((value, timestamp))

    def values(self, window: Any) -> list[Any] | None:
        """Return what the evictor leaves, aggregated if the operation aggregates."""
        pairs = self._state.get()
        if not pairs:
            return None
        self._elements = elements = [TimestampedValue(*pair) for pair in pairs]
        self._evictor.evict_before(elements, len(elements), window, self._context)
        return self._aggregate([element.value for element in elements])

    def fired(self, window: Any) -> None:
        """Evict after the window function, and store the rest."""
        elements = self._elements
        self._evictor.evict_after(elements, len(elements), window, self._context)
        self._state.update([tuple(element) for element in elements])
        self._elements = []


def contents_of(
    operation: WindowOperation, states: WindowStates, context: Evictor.EvictorContext
) -> WindowContents:
    """Return the contents of an operation's windows."""
    descriptor = operation.contents
    if operation.evictor is not None:
        return _evicting_contents(operation, operation.evictor, states, context)
    if isinstance(descriptor, ReducingStateDescriptor):
        return AggregatedContents(states.get_reducing_state(descriptor))
    if isinstance(descriptor, AggregatingStateDescriptor):
        return AggregatedContents(states.get_aggregating_state(descriptor))
    assert isinstance(descriptor, ListStateDescriptor)
    return ListContents(states.get_list_state(descriptor))


def _evicting_contents(
    operation: WindowOperation,
    evictor: Evictor[Any, Any],
    states: WindowStates,
    context: Evictor.EvictorContext,
) -> EvictingContents:
    descriptor, type_info = operation.contents, None
    if isinstance(descriptor, ListStateDescriptor):
        type_info = descriptor.element_type_info
    elif isinstance(descriptor, ReducingStateDescriptor):
        type_info = descriptor.type_info
    timed = Types.TUPLE([type_info or Types.PICKLED_BYTE_ARRAY(), Types.LONG()])
    elements = states.get_list_state(ListStateDescriptor(WINDOW_CONTENTS, timed))
    return EvictingContents(elements, evictor, context, _aggregate_of(descriptor))


def _aggregate_of(descriptor: Any) -> Callable[[list[Any]], list[Any] | None]:
    """Return how the values that an evictor leaves become the input of the window function."""
    if isinstance(descriptor, ReducingStateDescriptor):
        function = descriptor.get_reduce_function()
        step = getattr(function, "reduce", function)
        return lambda values: [reduce(step, values)] if values else None
    if isinstance(descriptor, AggregatingStateDescriptor):
        aggregate = descriptor.get_agg_function()

        def aggregated(values: list[Any]) -> list[Any] | None:
            if not values:
                return None
            accumulator = aggregate.create_accumulator()
            for value in values:
                accumulator = aggregate.add(value, accumulator)
            return [aggregate.get_result(accumulator)]

        return aggregated
    return lambda values: values
