"""The keyed states of one step, micro-batch by micro-batch."""

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
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.keyed.aggregating_state import KeyedAggregatingState
from penstock.state.keyed.key_context import KeyContext
from penstock.state.keyed.list_state import KeyedListState
from penstock.state.keyed.map_state import KeyedMapState
from penstock.state.keyed.raw_state import KeyedRawState
from penstock.state.keyed.reducing_state import KeyedReducingState
from penstock.state.keyed.stored_state import StoredState
from penstock.state.keyed.timers import TimerTable
from penstock.state.keyed.value_state import KeyedValueState
from penstock.state.keys import KeyCodec
from penstock.state.registry.state_registry import StateRegistry
from penstock.state.ttl.cells import (
    TtlAggregatingState,
    TtlRawState,
    TtlReducingState,
    TtlValueState,
)
from penstock.state.ttl.list_state import TtlListState
from penstock.state.ttl.map_state import TtlMapState
from penstock.state.ttl.settings import TtlSettings, ttl_settings_of
from penstock.types.serializers import serializer_for

S = TypeVar("S", bound=StoredState)


class KeyedStates(KeyContext):
    """All keyed states of one step in one task.

    The task calls ``bind`` with an open store and the distinct keys of the micro-batch, sets
    ``current`` to the number of a record's key before it calls the function, and calls
    ``take_delta`` at the end. A state stays valid across ``bind``: a function that is kept for the
    next micro-batch keeps its states. States may also be requested before the first ``bind``.

    A state that the store holds under an older type is migrated when it is declared: from then on
    all reads return the new type, and the delta contains the whole rewritten table. The migration
    happens with this micro-batch or not at all: a failed try leaves the old values, and the next
    one migrates again.
    """

    __slots__ = ("_known", "_per_window", "_registry", "_states")

    def __init__(
        self, step_name: str, key_codec: KeyCodec, registry: StateRegistry | None = None
    ) -> None:
        super().__init__(step_name, key_codec)
        self._states: dict[str, StoredState] = {}
        self._known: dict[bytes, int] | None = None
        self._registry = StateRegistry(step_name) if registry is None else registry
        self._registry.add_reader(self)
        self._per_window: WindowStates | None = None

    def bind(
        self,
        store: StateStore,
        routed_keys: list[bytes],
        keys: Sequence[Any] | None = None,
        now: int = 0,
    ) -> None:
        """Begin a micro-batch; ``keys`` are the decoded keys if the caller has them.

        ``now`` is its processing time in milliseconds.
        """
        self.now = now
        self._registry.bind(store)
        self._bind_states(routed_keys, keys)
        if self._per_window is not None:
            self._per_window.begin()

    def _bind_states(self, routed_keys: list[bytes], keys: Sequence[Any] | None) -> None:
        self._enter(self._registry.store, routed_keys, keys)
        self._known = None
        for state in self._states.values():
            state.bind(self._registry.table_of(state))

    def rocksdb_metrics(self, properties: Sequence[str]) -> dict[str, int]:
        """Return properties of the states' column families, under Flink's names."""
        return self._registry.rocksdb_metrics(properties)

    def per_window(self, encoding: str) -> WindowStates:
        """Return the states per window; ``encoding`` names the encoding of the windows."""
        if self._per_window is None:
            self._per_window = WindowStates(self, encoding)
            self._per_window.begin()
        return self._per_window

    def release(self) -> None:
        """Release the memory of a micro-batch; a kept function may wait long for the next one."""
        for context in self._contexts():
            context._enter(self.store, [])
            context._known = None
            for state in context._states.values():
                state.release()

    def add_keys(self, routed_keys: Sequence[bytes]) -> range:
        """Add keys that appear during the micro-batch (timers) and return their numbers."""
        first = len(self.routed)
        self._add(routed_keys)
        for state in self._states.values():
            state.grow(len(routed_keys))
        return range(first, len(self.routed))

    def get_state(self, descriptor: ValueStateDescriptor) -> KeyedValueState:
        """Return the value state of a descriptor."""
        ttl = self._ttl(descriptor)
        state = KeyedValueState if ttl is None else TtlValueState
        return self._declare(
            state(self, descriptor.name, serializer_for(descriptor.type_info), ttl), descriptor
        )

    def get_list_state(self, descriptor: ListStateDescriptor) -> KeyedListState:
        """Return the list state of a descriptor."""
        ttl = self._ttl(descriptor)
        state = KeyedListState if ttl is None else TtlListState
        types = descriptor.type_info, descriptor.element_type_info
        return self._declare(state(self, descriptor.name, *types, ttl), descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor) -> KeyedMapState:
        """Return the map state of a descriptor."""
        ttl = self._ttl(descriptor)
        state = KeyedMapState if ttl is None else TtlMapState
        types = descriptor.type_info, descriptor.key_type_info, descriptor.value_type_info
        return self._declare(state(self, descriptor.name, *types, ttl), descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> KeyedReducingState:
        """Return the reducing state of a descriptor."""
        ttl = self._ttl(descriptor)
        state = KeyedReducingState if ttl is None else TtlReducingState
        function = descriptor.get_reduce_function()
        reduce = getattr(function, "reduce", function)
        serializer = serializer_for(descriptor.type_info)
        return self._declare(state(self, descriptor.name, serializer, reduce, ttl), descriptor)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> KeyedAggregatingState:
        """Return the aggregating state of a descriptor."""
        ttl = self._ttl(descriptor)
        state = KeyedAggregatingState if ttl is None else TtlAggregatingState
        serializer, function = serializer_for(descriptor.type_info), descriptor.get_agg_function()
        return self._declare(state(self, descriptor.name, serializer, function, ttl), descriptor)

    def get_raw_state(self, descriptor: RawStateDescriptor) -> KeyedRawState:
        """Return the raw state of a descriptor."""
        ttl = self._ttl(descriptor)
        state = KeyedRawState if ttl is None else TtlRawState
        return self._declare(state(self, descriptor.name, descriptor.type_info, ttl), descriptor)

    def get_timers(self, name: str) -> TimerTable:
        """Return the timers of a time domain."""
        return self._declare(TimerTable(self, name))

    def number_of_key(self, routed: bytes) -> int:
        """Return the number of a key, which is added if the micro-batch has no record of it."""
        if self._known is None:
            self._known = {key: number for number, key in enumerate(self.routed)}
        number = self._known.get(routed)
        if number is None:
            (number,) = self.add_keys([routed])
            self._known[routed] = number
        return number

    def take_delta(self) -> Delta:
        """Return all changes since ``bind``, sorted by key; a second call returns none."""
        delta = Delta()
        states = [state for context in self._contexts() for state in context._states.values()]
        self._registry.take_changes(states, delta)
        return delta

    def _contexts(self) -> Iterator[KeyedStates]:
        yield self
        if self._per_window is not None:
            yield self._per_window

    def _ttl(self, descriptor: StateDescriptor) -> TtlSettings | None:
        if not isinstance(descriptor, StateDescriptor):
            message = f"a state is requested by a StateDescriptor; got {descriptor!r}"
            raise InvalidJobError(message)
        return ttl_settings_of(descriptor.ttl_config)

    def _declare(self, state: S, descriptor: StateDescriptor | None = None) -> S:
        if descriptor is not None:
            state.queryable = descriptor.get_queryable_state_name() or ""
        known = self._states.get(state.name)
        if known is not None:
            info = known.info(0)
            if not state.matches(info):
                declared = str(state.info(0))
                raise StateDeclaredTwiceError(self.step, state.name, str(info), declared)
            assert isinstance(known, type(state))
            return known
        state.bind(self._registry.table_of(state))
        self._states[state.name] = state
        return state


class WindowStates(KeyedStates):
    """The states of one step per key and window.

    A key with a window is used like a key: its bytes are the routed key, whose length is part of
    it, followed by the window's bytes.
    """

    __slots__ = ("_keyed", "_numbers")

    def __init__(self, keyed: KeyedStates, encoding: str) -> None:
        super().__init__(keyed.step, keyed.codec, keyed._registry)
        self._keyed = keyed
        self._numbers: dict[bytes, int] = {}
        self.windows = encoding

    def begin(self) -> None:
        """Begin a micro-batch without any window."""
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
        """Return the numbers of routed keys followed by their windows."""
        numbers = self._numbers
        new = [key for key in dict.fromkeys(routed) if key not in numbers]
        if new:
            numbers.update(zip(new, self.add_keys(new), strict=True))
        return [numbers[key] for key in routed]
