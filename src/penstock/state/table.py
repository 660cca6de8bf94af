"""Tables: each state of a step has one, and a registry says which.

A store's keys are the table's id (2 bytes), the routed key, the window if the state is kept per
window, and in a map state the user's key; in those of timers the time stands between key group and
key (`penstock.state.timers`). Table 0 is the registry itself: state names with their id, kind and
type. It is written through the same deltas as the values, so it is always as old as they are.
"""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import State
from penstock.errors import StateTypeMismatchError, TypeMismatchError
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.lifetime import Lifetime
from penstock.state.scope import KeyScope
from penstock.state.type_text import spell

__all__ = [
    "LIST_STATE",
    "MAP_STATE",
    "NO_VALUE",
    "RAW_STATE",
    "REGISTRY",
    "TIMERS",
    "TableInfo",
    "TableState",
    "TableTtl",
    "read_registry",
    "registry_key",
    "table_prefix",
]

REGISTRY = 0

LEAST_SWEPT = 1000
"""Entries of a table that a micro-batch looks at for expired ones, however few keys it has."""

LIST_STATE = "list state"
MAP_STATE = "map state"
RAW_STATE = "raw state"
TIMERS = "timers"

NO_VALUE = b""
"""What a map state stores for a key that is there with None; no value encodes to no bytes."""

_pack = msgspec.msgpack.Encoder().encode


class TableTtl(msgspec.Struct, frozen=True, array_like=True):
    """What the registry says about a state whose values expire; all times in milliseconds.

    ``since`` is when the state got its time-to-live: values from before count as written then.
    ``cursor`` to ``due`` say where the walk over its entries stands (`penstock.state.sweep`): the
    key it goes on at, when it began, the oldest stamp it left, and when the next one may begin.
    """

    millis: int
    since: int
    in_full_snapshot: bool
    cursor: bytes = b""
    began: int = 0
    oldest: int = 0
    due: int = 0


class TableInfo(msgspec.Struct, frozen=True, array_like=True):
    """What the registry says about a state.

    ``type`` is text of `penstock.state.type_text`: a store can be decoded without the program.
    ``generation`` counts the migrations from one type to another. ``windows`` names the encoding of
    the windows behind the keys (`penstock.state.window_bytes`), where the state is kept per window.
    """

    table: int
    kind: str
    type: str
    generation: int = 0
    windows: str = ""
    ttl: TableTtl | None = None

    def __str__(self) -> str:
        per_window = f" per {self.windows} window" if self.windows else ""
        lives = "" if self.ttl is None else f" with a time-to-live of {self.ttl.millis} ms"
        return f"{self.kind} of {self.type}{per_window}{lives}"

    def encode(self) -> bytes:
        """Return the registry entry's value."""
        if self.ttl is not None:
            return _pack(self)
        # States without windows were written before there were any.
        facts = (self.table, self.kind, self.type, self.generation)
        return _pack((*facts, self.windows) if self.windows else facts)


decode_info = msgspec.msgpack.Decoder(TableInfo).decode


class TableState(State):
    """A state that keeps its values in one table of the store."""

    __slots__ = ("_prefix", "_scope", "name", "type_text")

    kind: str
    lifetime: Lifetime | None = None

    def __init__(self, scope: KeyScope, name: str, type_info: TypeInformation) -> None:
        self._scope = scope
        self._prefix = b""
        self.name = name
        self.type_text = spell(type_info)

    def info(self, table: int, generation: int = 0) -> TableInfo:
        """Return the registry entry of this state under a table id."""
        ttl, lives = None, self.lifetime
        if lives is not None:
            ttl = TableTtl(lives.millis, self._scope.now, lives.in_full_snapshot)
        return TableInfo(table, self.kind, self.type_text, generation, self._scope.windows, ttl)

    def is_as(self, info: TableInfo) -> bool:
        """Tell whether a registry entry describes a state of this kind, type and lifetime."""
        mine = self.info(info.table, info.generation)
        if mine.ttl is not None and info.ttl is not None:
            ttl = TableTtl(info.ttl.millis, mine.ttl.since, info.ttl.in_full_snapshot)
            info = msgspec.structs.replace(info, ttl=ttl)
        return info == mine

    def bind(self, table: int) -> None:
        """Forget all values and begin a new micro-batch on the given table."""
        self._prefix = table_prefix(table)
        self._reset(len(self._scope.routed))

    def release(self) -> None:
        """Forget all values until the next `bind`."""
        self._reset(0)

    @abstractmethod
    def grow(self, count: int) -> None:
        """Make room for so many more keys."""

    @abstractmethod
    def take_changes(self, delta: Delta) -> None:
        """Append what was written since the last call to a delta, in key order."""

    def to_sweep(self) -> int:
        """Return how many entries of its table to look at for expired ones."""
        lives = self.lifetime
        if lives is None or not lives.entries_per_key:
            return 0
        keys = len(self._scope.routed) if lives.every_key else self._touched()
        return max(LEAST_SWEPT, lives.entries_per_key * keys)

    def _touched(self) -> int:
        """Return for how many keys the state was used in this micro-batch."""
        return 0

    @abstractmethod
    def _reset(self, count: int) -> None: ...

    def _named(
        self, error: TypeMismatchError, index: int, inside: str = ""
    ) -> StateTypeMismatchError:
        """Say where a value did not fit: step, state and key."""
        scope = self._scope
        path = f"{inside}.{error.path}" if inside and error.path else inside + error.path
        return StateTypeMismatchError(
            scope.step, self.name, scope.key_at(index), path, error.shown, error.type_info
        )


def table_prefix(table: int) -> bytes:
    """Return what all keys of a table begin with."""
    return table.to_bytes(2, "big")


def registry_key(name: str) -> bytes:
    """Return the key of a state's registry entry."""
    return table_prefix(REGISTRY) + name.encode()


def registry_name(key: bytes) -> str:
    """Return the state name in the key of a registry entry."""
    return key[2:].decode()


def read_registry(store: StateStore) -> dict[str, TableInfo]:
    """Return the states a store knows, by name."""
    return {
        registry_name(key): decode_info(value) for key, value in store.scan(table_prefix(REGISTRY))
    }
