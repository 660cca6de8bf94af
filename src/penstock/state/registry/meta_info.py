"""The registry entries of states.

Every state of a step has a table in the store, which RocksDB keeps as a column family. A store's
keys are the table's id (2 bytes), the routed key, the window if the state is kept per window, and
in a map state the user's key; those of timers have the time between key group and key
(`keyed.timers`). Table 0 is the registry itself: state names with their id, kind and type. It is
written through the same deltas as the values, so both are always of the same version.
"""

from __future__ import annotations

import msgspec

from penstock.state.backends.store import StateStore

REGISTRY = 0

LIST_STATE = "list state"
MAP_STATE = "map state"
RAW_STATE = "raw state"
TIMERS = "timers"

NO_VALUE = b""
"""What a map state stores for a key whose value is None; no value encodes to no bytes."""

_pack = msgspec.msgpack.Encoder().encode


class TtlMetaInfo(msgspec.Struct, frozen=True, array_like=True):
    """The registry entry of a state's time-to-live; all times in milliseconds.

    ``since`` is when the state got its time-to-live: older values count as written then. ``cursor``
    to ``due`` are the progress of the cleanup (`state.ttl.cleanup`): the key to continue at, when
    the pass began, the oldest timestamp it has kept, and when the next pass may begin.
    """

    millis: int
    since: int
    in_full_snapshot: bool
    cursor: bytes = b""
    began: int = 0
    oldest: int = 0
    due: int = 0


class StateMetaInfo(msgspec.Struct, frozen=True, array_like=True):
    """The registry entry of a state.

    ``type`` is a signature of `penstock.types.signature`, so a store can be decoded without the
    program. ``generation`` counts the migrations from one type to another. ``windows`` names the
    encoding of the windows after the keys (`state.window_encoding`), if the state is per window.
    ``queryable`` is the name under which others may look it up, empty if they may not.
    """

    table: int
    kind: str
    type: str
    generation: int = 0
    windows: str = ""
    ttl: TtlMetaInfo | None = None
    queryable: str = ""

    def __str__(self) -> str:
        per_window = f" per {self.windows} window" if self.windows else ""
        expires = "" if self.ttl is None else f" with a time-to-live of {self.ttl.millis} ms"
        queryable = f", queryable as {self.queryable!r}" if self.queryable else ""
        return f"{self.kind} of {self.type}{per_window}{expires}{queryable}"

    def encode(self) -> bytes:
        """Return the registry entry's value."""
        if self.queryable:
            return _pack(self)
        # The bytes of states that lack the newer fields are those from before there were any.
        fields = (self.table, self.kind, self.type, self.generation)
        if self.ttl is not None:
            return _pack((*fields, self.windows, self.ttl))
        return _pack((*fields, self.windows) if self.windows else fields)


decode_info = msgspec.msgpack.Decoder(StateMetaInfo).decode


def table_prefix(table: int) -> bytes:
    """Return the common prefix of a table's keys."""
    return table.to_bytes(2, "big")


def registry_key(name: str) -> bytes:
    """Return the key of a state's registry entry."""
    return table_prefix(REGISTRY) + name.encode()


def registry_name(key: bytes) -> str:
    """Return the state name in the key of a registry entry."""
    return key[2:].decode()


def read_registry(store: StateStore) -> dict[str, StateMetaInfo]:
    """Return the registry of a store: its states by name."""
    return {
        registry_name(key): decode_info(value) for key, value in store.scan(table_prefix(REGISTRY))
    }
