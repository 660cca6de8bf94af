"""States and their descriptors, under Flink's names.

A function gets a state from its runtime context by descriptor, in ``open``, and keeps it. Every
call on a keyed state reads or writes the value of the current record's key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.common.typeinfo import (
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    TypeInformation,
    Types,
    check_type,
)
from penstock.datastream.batch_keys import BatchKeys
from penstock.datastream.state_ttl import StateTtlConfig

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "RawState",
    "RawStateDescriptor",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Base of all states."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove everything under the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """Return the current value, None if there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value; None removes it."""

    @abstractmethod
    def get_many(self, keys: BatchKeys) -> pa.Array:
        """Return the values of all keys of a record batch, null for none. Not in PyFlink."""

    @abstractmethod
    def put_many(self, keys: BatchKeys, values: pa.Array | Sequence[T | None]) -> None:
        """Set the values of all keys of a record batch; null removes one. Not in PyFlink."""


class AppendingState(State, Generic[IN, OUT]):
    """A state to which elements are added."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result of the elements added so far."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add an element."""


class MergingState(AppendingState[IN, OUT]):
    """An appending state that can be merged with another one."""

    __slots__ = ()


class ReducingState(MergingState[T, T]):
    """One value per key, combined with each new element by a reduce function."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator per key, updated and read through an aggregate function."""

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list per key."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> Iterable[T]:
        """Return the elements in the order they were added; none if there is no list."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the list; an empty one removes it."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Add elements in their order."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _ReadableMap(State, Generic[K, V]):
    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of ``key``, None if there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Tell whether there is an entry for ``key``."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return all entries."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys of all entries."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values of all entries."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Tell whether there is no entry."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _WritableMap(_ReadableMap[K, V]):
    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of ``key``."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the value of each key of a dict."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the entry of ``key`` if there is one."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class ReadOnlyBroadcastState(_ReadableMap[K, V]):
    """A broadcast state as the non-broadcast side of a function sees it."""

    __slots__ = ()


class BroadcastState(_WritableMap[K, V], ReadOnlyBroadcastState[K, V]):
    """A map with an identical copy in every subtask of an operator."""

    __slots__ = ()


class MapState(_WritableMap[K, V]):
    """A map per key; each entry is stored by itself.

    Iteration follows the order of the map keys' encoded bytes: numbers, text and dates in their own
    order, whatever the order of insertion. It holds the whole map of the current key in memory, and
    entries that are put or removed meanwhile do not affect it.
    """

    __slots__ = ()


class RawState(State):
    """Bytes per key, stored unchanged. Not in PyFlink."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> bytes | None:
        """Return the bytes, None if there are none."""

    @abstractmethod
    def set(self, value: bytes) -> None:
        """Set the bytes."""


class OperatorStateStore(ABC):
    """Gives a function access to its operator state."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return this subtask's list; a restore with another parallelism redistributes it."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list that holds the elements of all subtasks after a restore."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map of which every subtask has a copy; all must write the same to it."""


class StateDescriptor(ABC):  # noqa: B024  abstract: only its subclasses describe a state
    """Name and type of a state.

    The name is unique within a function and identifies the state after a restart. Without a type,
    values are pickled.
    """

    def __init__(self, name: str, type_info: TypeInformation | None) -> None:
        if not name:
            message = f"a state needs a name; got {name!r}"
            raise ValueError(message)
        self.name = name
        self.type_info: TypeInformation = _or_pickled(type_info)
        self.ttl_config: StateTtlConfig | None = None
        self._queryable_name = ""

    def get_name(self) -> str:
        """Return the name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire as configured."""
        if not isinstance(ttl_config, StateTtlConfig):
            message = f"state {self.name!r} needs a StateTtlConfig; got {ttl_config!r}"
            raise TypeError(message)
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def set_queryable(self, queryable_state_name: str) -> None:
        """Let others look up values of this keyed state, under this name or that of the state.

        Not in PyFlink; in Flink it is `setQueryable`. It has no effect on broadcast and operator
        state.
        """
        if not isinstance(queryable_state_name, str) or not queryable_state_name:
            message = f"state {self.name!r} needs a queryable name; got {queryable_state_name!r}"
            raise ValueError(message)
        if self._queryable_name:
            message = f"state {self.name!r} is queryable as {self._queryable_name!r} already"
            raise ValueError(message)
        self._queryable_name = queryable_state_name

    def is_queryable(self) -> bool:
        """Tell whether others may look up values."""
        return bool(self._queryable_name)

    def get_queryable_state_name(self) -> str | None:
        """Return the name under which others look up values, None if they may not."""
        return self._queryable_name or None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info!r})"


class ValueStateDescriptor(StateDescriptor):
    """Describes a :class:`ValueState`."""

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes a :class:`ListState`."""

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        self.element_type_info = _or_pickled(elem_type_info)
        super().__init__(name, ListTypeInfo(self.element_type_info))


class MapStateDescriptor(StateDescriptor):
    """Describes a :class:`MapState`; also a :class:`BroadcastState`."""

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
    ) -> None:
        self.key_type_info = _or_pickled(key_type_info)
        self.value_type_info = _or_pickled(value_type_info)
        super().__init__(name, MapTypeInfo(self.key_type_info, self.value_type_info))


class ReducingStateDescriptor(StateDescriptor):
    """Describes a :class:`ReducingState`.

    ``reduce_function`` is a callable of two values or has a ``reduce`` method of two values.
    """

    def __init__(
        self, name: str, reduce_function: Any, type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, type_info)
        if not callable(getattr(reduce_function, "reduce", reduce_function)):
            message = (
                f"a reducing state needs a ReduceFunction or callable; got {reduce_function!r}"
            )
            raise TypeError(message)
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> Any:
        """Return the reduce function."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an :class:`AggregatingState`; the type is that of the accumulator.

    ``agg_function`` has ``create_accumulator``, ``add(value, accumulator)`` and ``get_result``.
    """

    def __init__(
        self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, state_type_info)
        missing = [
            method
            for method in ("create_accumulator", "add", "get_result")
            if not callable(getattr(agg_function, method, None))
        ]
        if missing:
            message = f"an aggregating state needs an AggregateFunction; got {agg_function!r}"
            raise TypeError(message)
        self._agg_function = agg_function

    def get_agg_function(self) -> Any:
        """Return the aggregate function."""
        return self._agg_function


class RawStateDescriptor(StateDescriptor):
    """Describes a :class:`RawState`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, PrimitiveArrayTypeInfo(Types.BYTE()))


def _or_pickled(type_info: TypeInformation | None) -> TypeInformation:
    check_type("the type of a state", type_info)
    return PickledBytesTypeInfo() if type_info is None else type_info
