"""The keyed states of one function, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
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
from penstock.errors import InvalidJobError, StateDeclaredTwiceError, StateTypeChangedError
from penstock.state.aggregating_state import KeyedAggregatingState
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.evolution import Incompatible
from penstock.state.keys import KeyCodec
from penstock.state.list_state import KeyedListState
from penstock.state.map_state import KeyedMapState
from penstock.state.migration import RewritingStore, rewriter
from penstock.state.raw_state import KeyedRawState
from penstock.state.reducing_state import KeyedReducingState
from penstock.state.scope import KeyScope
from penstock.state.serializers import serializer_for
from penstock.state.table import (
    TableInfo,
    TableState,
    read_registry,
    registry_key,
    table_prefix,
)
from penstock.state.value_state import KeyedValueState

__all__ = ["KeyedStates"]

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

    __slots__ = ("_registry", "_states", "_unregistered", "_unwritten")

    def __init__(self, step_name: str, key_codec: KeyCodec) -> None:
        super().__init__(step_name, key_codec)
        self._states: dict[str, TableState] = {}
        self._registry: dict[str, TableInfo] = {}
        self._unregistered: dict[str, TableInfo] = {}
        self._unwritten: dict[str, RewritingStore] = {}

    def bind(
        self,
        store: StateStore,
        routed_keys: list[bytes],
        keys: Sequence[Any] | None = None,
    ) -> None:
        """Begin a micro-batch; ``keys`` are the decoded keys if the caller has them anyway."""
        self._enter(store, routed_keys, keys)
        self._registry = read_registry(store)
        self._unregistered = {}
        self._unwritten = {}
        for state in self._states.values():
            state.bind(self._table_of(state))

    def release(self) -> None:
        """Forget the micro-batch that is over; a kept function may wait long for the next."""
        self._enter(self.store, [])
        for state in self._states.values():
            state.release()

    def add_keys(self, routed_keys: Sequence[bytes]) -> range:
        """Add keys that come up during the micro-batch (timers) and return their numbers."""
        first = len(self.routed)
        self._add(routed_keys)
        for state in self._states.values():
            state.grow(len(routed_keys))
        return range(first, len(self.routed))

    def get_state(self, descriptor: ValueStateDescriptor) -> KeyedValueState:
        """Return the value state a descriptor names."""
        self._check(descriptor)
        serializer = serializer_for(descriptor.type_info)
        return self._declare(KeyedValueState(self, descriptor.name, serializer))

    def get_list_state(self, descriptor: ListStateDescriptor) -> KeyedListState:
        """Return the list state a descriptor names."""
        self._check(descriptor)
        return self._declare(
            KeyedListState(
                self, descriptor.name, descriptor.type_info, descriptor.element_type_info
            )
        )

    def get_map_state(self, descriptor: MapStateDescriptor) -> KeyedMapState:
        """Return the map state a descriptor names."""
        self._check(descriptor)
        return self._declare(
            KeyedMapState(
                self,
                descriptor.name,
                descriptor.type_info,
                descriptor.key_type_info,
                descriptor.value_type_info,
            )
        )

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> KeyedReducingState:
        """Return the reducing state a descriptor names."""
        self._check(descriptor)
        function = descriptor.get_reduce_function()
        reduce = getattr(function, "reduce", function)
        serializer = serializer_for(descriptor.type_info)
        return self._declare(KeyedReducingState(self, descriptor.name, serializer, reduce))

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> KeyedAggregatingState:
        """Return the aggregating state a descriptor names."""
        self._check(descriptor)
        serializer = serializer_for(descriptor.type_info)
        function = descriptor.get_agg_function()
        return self._declare(KeyedAggregatingState(self, descriptor.name, serializer, function))

    def get_raw_state(self, descriptor: RawStateDescriptor) -> KeyedRawState:
        """Return the raw state a descriptor names."""
        return self._declare(KeyedRawState(self, descriptor.name, descriptor.type_info))

    def take_delta(self) -> Delta:
        """Return what was written since ``bind``, sorted by key; a second call finds nothing."""
        delta = Delta()
        for name in sorted(self._unregistered):
            delta.keys.append(registry_key(name))
            delta.values.append(self._unregistered[name].encode())
        self._unregistered = {}
        for state in sorted(self._states.values(), key=self._table_of):
            rewriting = self._unwritten.pop(state.name, None)
            if rewriting is None:
                state.take_changes(delta)
            else:
                changes = Delta()
                state.take_changes(changes)
                rewriting.add_unwritten(table_prefix(self._table_of(state)), changes, delta)
        return delta

    def _check(self, descriptor: StateDescriptor) -> None:
        # State that is meant to expire and never does would be wrong without a word.
        if not isinstance(descriptor, StateDescriptor):
            message = f"a state is asked for by a descriptor, not by {descriptor!r}"
            raise InvalidJobError(message)
        if descriptor.ttl_config is not None:
            message = (
                f"state {descriptor.name!r} of step {self.step!r} has a time-to-live, which is "
                "not at work yet: remove enable_time_to_live(), or clear() what is too old"
            )
            raise InvalidJobError(message)

    def _declare(self, state: S) -> S:
        known = self._states.get(state.name)
        if known is not None:
            info = known.info(0)
            if not state.is_as(info):
                declared = str(state.info(0))
                raise StateDeclaredTwiceError(self.step, state.name, str(info), declared)
            assert isinstance(known, type(state))
            return known
        state.bind(self._table_of(state))
        self._states[state.name] = state
        return state

    def _table_of(self, state: TableState) -> int:
        info = self._registry.get(state.name)
        if info is None:
            taken = (known.table for known in self._registry.values())
            info = self._register(state.name, state.info(max(taken, default=0) + 1))
        elif not state.is_as(info):
            info = self._migrate(state, info)
        return info.table

    def _register(self, name: str, info: TableInfo) -> TableInfo:
        self._registry[name] = self._unregistered[name] = info
        return info

    def _migrate(self, state: TableState, known: TableInfo) -> TableInfo:
        declared = state.info(known.table, known.generation + 1)
        rewrite = rewriter(known, declared)
        if isinstance(rewrite, Incompatible):
            raise StateTypeChangedError(
                self.step, state.name, str(known), str(declared), rewrite.reason
            )
        if rewrite is not None:
            if not isinstance(self.store, RewritingStore):
                self.store = RewritingStore(self.store)
            self.store.rewrite(table_prefix(known.table), rewrite)
            self._unwritten[state.name] = self.store
        return self._register(state.name, declared)
