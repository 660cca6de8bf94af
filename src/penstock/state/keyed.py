"""The keyed states of one function, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.errors import InvalidJobError, StateDeclaredTwiceError
from penstock.state.aggregating_state import KeyedAggregatingState
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.expiring_cells import (
    ExpiringAggregatingState,
    ExpiringRawState,
    ExpiringReducingState,
    ExpiringValueState,
)
from penstock.state.expiring_list import ExpiringListState
from penstock.state.expiring_map import ExpiringMapState
from penstock.state.keys import KeyCodec
from penstock.state.lifetime import Lifetime, lifetime_of
from penstock.state.list_state import KeyedListState
from penstock.state.map_state import KeyedMapState
from penstock.state.raw_state import KeyedRawState
from penstock.state.reducing_state import KeyedReducingState
from penstock.state.scope import KeyScope
from penstock.state.serializers import serializer_for
from penstock.state.table import TableState
from penstock.state.tables import Tables
from penstock.state.timers import TimerTable
from penstock.state.value_state import KeyedValueState

__all__ = ["KeyedStates", "WindowStates"]

S = TypeVar("S", bound=TableState)


class KeyedStates(KeyScope):
    """All keyed states of one step in one task.

    The run loop calls ``bind`` with an open store and the distinct keys of the micro-batch, sets
    ``current`` to the number of a record's key before the function sees the record, and calls
    ``take_delta`` at the end. States handed out stay good across ``bind``: a function that is kept
    for the next micro-batch keeps them. They may also be asked for before the first ``bind``.

    A state that the store holds under an older type is migrated where it is declared: from then on
    all reads show the new type, and the delta holds the whole table rewritten. So it happens with
    this micro-batch or not at all; a lost try leaves the old values, and the next one migrates
    again.
    """

    __slots__ = ("_known", "_per_window", "_states", "_tables")

    def __init__(self, step_name: str, key_codec: KeyCodec, tables: Tables | None = None) -> None:
        super().__init__(step_name, key_codec)
        self._states: dict[str, TableState] = {}
        self._known: dict[bytes, int] | None = None
        self._tables = Tables(step_name) if tables is None else tables
        self._tables.read_by(self)
        self._per_window: WindowStates | None = None

    def bind(
        self,
        store: StateStore,
        routed_keys: list[bytes],
        keys: Sequence[Any] | None = None,
        now: int = 0,
    ) -> None:
        """Begin a micro-batch; ``keys`` are the decoded keys if the caller has them anyway.

        ``now`` is its processing time in milliseconds.
        """
        self.now = now
        self._tables.bind(store)
        self._bind_states(routed_keys, keys)
        if self._per_window is not None:
            self._per_window.begin()

    def _bind_states(self, routed_keys: list[bytes], keys: Sequence[Any] | None) -> None:
        self._enter(self._tables.store, routed_keys, keys)
        self._known = None
        for state in self._states.values():
            state.bind(self._tables.table_of(state))

    def per_window(self, encoding: str) -> WindowStates:
        """Return the states that this step has per window; ``encoding`` says what the bytes are."""
        if self._per_window is None:
            self._per_window = WindowStates(self, encoding)
            self._per_window.begin()
        return self._per_window

    def release(self) -> None:
        """Forget the micro-batch that is over; a kept function may wait long for the next."""
        for scope in self._scopes():
            scope._enter(self.store, [])
            scope._known = None
            for state in scope._states.values():
                state.release()

    def add_keys(self, routed_keys: Sequence[bytes]) -> range:
        """Add keys that come up during the micro-batch (timers) and return their numbers."""
        first = len(self.routed)
        self._add(routed_keys)
        for state in self._states.values():
            state.grow(len(routed_keys))
        return range(first, len(self.routed))

    def get_state(self, descriptor: ValueStateDescriptor) -> KeyedValueState | ExpiringValueState:
        """Return the value state a descriptor names."""
        lifetime = self._lifetime(descriptor)
        serializer = serializer_for(descriptor.type_info)
        if lifetime is None:
            return self._declare(KeyedValueState(self, descriptor.name, serializer))
        return self._declare(ExpiringValueState(self, descriptor.name, serializer, lifetime))

    def get_list_state(self, descriptor: ListStateDescriptor) -> KeyedListState | ExpiringListState:
        """Return the list state a descriptor names."""
        lifetime = self._lifetime(descriptor)
        name, types = descriptor.name, (descriptor.type_info, descriptor.element_type_info)
        if lifetime is None:
            return self._declare(KeyedListState(self, name, *types))
        return self._declare(ExpiringListState(self, name, *types, lifetime))

    def get_map_state(self, descriptor: MapStateDescriptor) -> KeyedMapState:
        """Return the map state a descriptor names."""
        lifetime = self._lifetime(descriptor)
        name, types = (
            descriptor.name,
            (descriptor.type_info, descriptor.key_type_info, descriptor.value_type_info),
        )
        if lifetime is None:
            return self._declare(KeyedMapState(self, name, *types))
        return self._declare(ExpiringMapState(self, name, *types, lifetime))

    def get_reducing_state(
        self, descriptor: ReducingStateDescriptor
    ) -> KeyedReducingState | ExpiringReducingState:
        """Return the reducing state a descriptor names."""
        lifetime = self._lifetime(descriptor)
        function = descriptor.get_reduce_function()
        reduce = getattr(function, "reduce", function)
        name, serializer = descriptor.name, serializer_for(descriptor.type_info)
        if lifetime is None:
            return self._declare(KeyedReducingState(self, name, serializer, reduce))
        return self._declare(ExpiringReducingState(self, name, serializer, reduce, lifetime))

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> KeyedAggregatingState | ExpiringAggregatingState:
        """Return the aggregating state a descriptor names."""
        lifetime = self._lifetime(descriptor)
        name, serializer = descriptor.name, serializer_for(descriptor.type_info)
        function = descriptor.get_agg_function()
        if lifetime is None:
            return self._declare(KeyedAggregatingState(self, name, serializer, function))
        return self._declare(ExpiringAggregatingState(self, name, serializer, function, lifetime))

    def get_raw_state(self, descriptor: RawStateDescriptor) -> KeyedRawState | ExpiringRawState:
        """Return the raw state a descriptor names."""
        lifetime = self._lifetime(descriptor)
        if lifetime is None:
            return self._declare(KeyedRawState(self, descriptor.name, descriptor.type_info))
        return self._declare(
            ExpiringRawState(self, descriptor.name, descriptor.type_info, lifetime)
        )

    def get_timers(self, name: str) -> TimerTable:
        """Return the timers of one kind of time."""
        return self._declare(TimerTable(self, name))

    def number_of_key(self, routed: bytes) -> int:
        """Return the number of a key, which is added if the micro-batch did not bring it."""
        if self._known is None:
            self._known = {key: number for number, key in enumerate(self.routed)}
        number = self._known.get(routed)
        if number is None:
            (number,) = self.add_keys([routed])
            self._known[routed] = number
        return number

    def take_delta(self) -> Delta:
        """Return what was written since ``bind``, sorted by key; a second call finds nothing."""
        delta = Delta()
        states = [state for scope in self._scopes() for state in scope._states.values()]
        self._tables.take_changes(states, delta)
        return delta

    def _scopes(self) -> Iterator[KeyedStates]:
        yield self
        if self._per_window is not None:
            yield self._per_window

    def _lifetime(self, descriptor: StateDescriptor) -> Lifetime | None:
        if not isinstance(descriptor, StateDescriptor):
            message = f"a state is asked for by a descriptor, not by {descriptor!r}"
            raise InvalidJobError(message)
        return lifetime_of(descriptor.ttl_config)

    def _declare(self, state: S) -> S:
        known = self._states.get(state.name)
        if known is not None:
            info = known.info(0)
            if not state.is_as(info):
                declared = str(state.info(0))
                raise StateDeclaredTwiceError(self.step, state.name, str(info), declared)
            assert isinstance(known, type(state))
            return known
        state.bind(self._tables.table_of(state))
        self._states[state.name] = state
        return state


class WindowStates(KeyedStates):
    """The states of one step per key and window.

    A key with a window takes the place of a key: its bytes are the routed key, which says itself
    where it ends, and the window's behind it.
    """

    __slots__ = ("_keyed", "_numbers")

    def __init__(self, keyed: KeyedStates, encoding: str) -> None:
        super().__init__(keyed.step, keyed.codec, keyed._tables)
        self._keyed = keyed
        self._numbers: dict[bytes, int] = {}
        self.windows = encoding

    def begin(self) -> None:
        """Begin a micro-batch: no window has come up yet."""
        self._numbers = {}
        self.now = self._keyed.now
        self._bind_states([], None)

    def number_of(self, window: bytes) -> int:
        """Return the number of a window of the current key."""
        keyed = self._keyed
        routed = keyed.routed[keyed.current] + window
        number = self._numbers.get(routed)
        return self.numbers_of([routed])[0] if number is None else number

    def numbers_of(self, routed: Sequence[bytes]) -> list[int]:
        """Return the numbers of routed keys with their windows behind them."""
        numbers = self._numbers
        new = [key for key in dict.fromkeys(routed) if key not in numbers]
        if new:
            numbers.update(zip(new, self.add_keys(new), strict=True))
        return [numbers[key] for key in routed]
