"""What a window keeps of its records until it fires."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.common.typeinfo import Types
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
)
from penstock.datastream.window.evictors import Evictor, TimestampedValue
from penstock.datastream.window.operation import WINDOW_CONTENTS, WindowOperation
from penstock.state.aggregating_state import KeyedAggregatingState
from penstock.state.keyed import WindowStates
from penstock.state.list_state import KeyedListState
from penstock.state.reducing_state import KeyedReducingState

__all__ = ["Contents", "Folded", "contents_of"]


class Contents(ABC):
    """The contents of the window that is current in the states per window."""

    @abstractmethod
    def add(self, value: Any, timestamp: int) -> None:
        """Take a record."""

    @abstractmethod
    def given(self, window: Any) -> list[Any] | None:
        """Return what the window's function is given; None if there is nothing to give."""

    def has_given(self, window: Any) -> None:  # noqa: B027
        """Hear that the function is through with what it was given last."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all."""

    @abstractmethod
    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Put what other windows hold into one of them, all by their numbers."""


class Folded(Contents):
    """One value that records are folded into as they come."""

    def __init__(self, state: KeyedReducingState | KeyedAggregatingState) -> None:
        self._state = state
        self.add_all: Callable[[Iterable[Any]], bool] = state.add_all
        """Take many records, touching the window's state once; tell whether it had none before."""

    def add(self, value: Any, timestamp: int) -> None:
        """Fold a record in."""
        self._state.add(value)

    def given(self, window: Any) -> list[Any] | None:
        """Return the value as it is now."""
        value = self._state.get()
        return None if value is None else [value]

    def clear(self) -> None:
        """Forget the value."""
        self._state.clear()

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Combine values."""
        self._state.merge(target, sources)


class Listed(Contents):
    """All records in a list."""

    def __init__(self, state: KeyedListState) -> None:
        self._state = state

    def add(self, value: Any, timestamp: int) -> None:
        """Append a record."""
        self._state.add(value)

    def given(self, window: Any) -> list[Any] | None:
        """Return the records."""
        return self._state.get() or None

    def clear(self) -> None:
        """Forget the records."""
        self._state.clear()

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Append lists to one."""
        self._state.merge(target, sources)


class Evicted(Listed):
    """All records with their times, of which an evictor removes some when the window fires."""

    def __init__(
        self,
        state: KeyedListState,
        evictor: Evictor[Any, Any],
        context: Evictor.EvictorContext,
        fold: Callable[[list[Any]], list[Any] | None],
    ) -> None:
        super().__init__(state)
        self._evictor = evictor
        self._context = context
        self._fold = fold
        self._elements: list[TimestampedValue] = []

    def add(self, value: Any, timestamp: int) -> None:
        """Append a record and its time."""
        self._state.add((value, timestamp))

    def given(self, window: Any) -> list[Any] | None:
        """Return what the evictor leaves, folded if it has to be."""
        held = self._state.get()
        if not held:
            return None
        self._elements = elements = [TimestampedValue(*pair) for pair in held]
        self._evictor.evict_before(elements, len(elements), window, self._context)
        return self._fold([element.value for element in elements])

    def has_given(self, window: Any) -> None:
        """Evict what has been seen, and keep the rest."""
        elements = self._elements
        self._evictor.evict_after(elements, len(elements), window, self._context)
        self._state.update([tuple(element) for element in elements])
        self._elements = []


def contents_of(
    operation: WindowOperation, states: WindowStates, context: Evictor.EvictorContext
) -> Contents:
    """Return what the windows of an operation keep."""
    kept = operation.contents
    if operation.evictor is not None:
        type_info = kept.element_type_info if isinstance(kept, ListStateDescriptor) else None
        if isinstance(kept, ReducingStateDescriptor):
            type_info = kept.type_info
        timed = Types.TUPLE([type_info or Types.PICKLED_BYTE_ARRAY(), Types.LONG()])
        elements = states.get_list_state(ListStateDescriptor(WINDOW_CONTENTS, timed))
        assert isinstance(elements, KeyedListState)
        return Evicted(elements, operation.evictor, context, _fold_of(operation))
    if isinstance(kept, ReducingStateDescriptor):
        reduced = states.get_reducing_state(kept)
        assert isinstance(reduced, KeyedReducingState)
        return Folded(reduced)
    if isinstance(kept, AggregatingStateDescriptor):
        aggregated = states.get_aggregating_state(kept)
        assert isinstance(aggregated, KeyedAggregatingState)
        return Folded(aggregated)
    assert isinstance(kept, ListStateDescriptor)
    listed = states.get_list_state(kept)
    assert isinstance(listed, KeyedListState)
    return Listed(listed)


def _fold_of(operation: WindowOperation) -> Callable[[list[Any]], list[Any] | None]:
    kept = operation.contents
    if isinstance(kept, ReducingStateDescriptor):
        function = kept.get_reduce_function()
        reduce = getattr(function, "reduce", function)
        return lambda values: _reduced(reduce, values)
    if isinstance(kept, AggregatingStateDescriptor):
        aggregate = kept.get_agg_function()
        return lambda values: _aggregated(aggregate, values)
    return lambda values: values


def _reduced(reduce: Callable[[Any, Any], Any], values: list[Any]) -> list[Any] | None:
    if not values:
        return None
    held = values[0]
    for value in values[1:]:
        held = reduce(held, value)
    return [held]


def _aggregated(function: Any, values: list[Any]) -> list[Any] | None:
    if not values:
        return None
    held = function.create_accumulator()
    for value in values:
        held = function.add(value, held)
    return [function.get_result(held)]
