"""The base of all keyed states."""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import State
from penstock.errors import StateTypeMismatchError, TypeMismatchError
from penstock.state.delta import Delta
from penstock.state.keyed.key_context import KeyContext
from penstock.state.registry.meta_info import StateMetaInfo, TtlMetaInfo, table_prefix
from penstock.state.ttl.settings import TtlSettings
from penstock.types.signature import type_signature

LEAST_CLEANED_UP = 1000
"""Entries of a table that a micro-batch looks at for expired ones, however few keys it has."""


class StoredState(State):
    """A state that keeps its values in one table of the store."""

    __slots__ = ("_context", "_prefix", "name", "queryable", "signature", "ttl")

    kind: str
    ttl: TtlSettings | None

    def __init__(
        self,
        context: KeyContext,
        name: str,
        type_info: TypeInformation,
        ttl: TtlSettings | None = None,
    ) -> None:
        self._context = context
        self._prefix = b""
        self.name = name
        self.signature = type_signature(type_info)
        self.ttl = ttl
        self.queryable = ""
        """The name under which others may look it up, empty if they may not."""

    def info(self, table: int, generation: int = 0) -> StateMetaInfo:
        """Return the registry entry of this state under a table id."""
        now, windows, ttl = self._context.now, self._context.windows, None
        if self.ttl is not None:
            ttl = TtlMetaInfo(self.ttl.millis, now, self.ttl.in_full_snapshot)
        return StateMetaInfo(
            table, self.kind, self.signature, generation, windows, ttl, self.queryable
        )

    def matches(self, info: StateMetaInfo) -> bool:
        """Tell whether a registry entry describes this state: kind, type and time-to-live, too."""
        mine = self.info(info.table, info.generation)
        if mine.ttl is not None and info.ttl is not None:
            ttl = TtlMetaInfo(info.ttl.millis, mine.ttl.since, info.ttl.in_full_snapshot)
            info = msgspec.structs.replace(info, ttl=ttl)
        return info == mine

    def bind(self, table: int) -> None:
        """Begin a micro-batch on a table, with an empty cache."""
        self._prefix = table_prefix(table)
        self._reset(len(self._context.routed))

    def release(self) -> None:
        """Empty the cache until the next `bind`."""
        self._reset(0)

    @abstractmethod
    def grow(self, count: int) -> None:
        """Extend the cache by a number of keys."""

    @abstractmethod
    def take_changes(self, delta: Delta) -> None:
        """Append all changes since the last call to a delta, in key order."""

    def cleanup_size(self) -> int:
        """Return how many entries of its table the incremental cleanup looks at."""
        ttl = self.ttl
        if ttl is None or not ttl.entries_per_key:
            return 0
        keys = len(self._context.routed) if ttl.every_key else self._touched()
        return max(LEAST_CLEANED_UP, ttl.entries_per_key * keys)

    def _touched(self) -> int:
        """Return for how many keys the state was used in this micro-batch."""
        return 0

    @abstractmethod
    def _reset(self, count: int) -> None: ...

    def _named(
        self, error: TypeMismatchError, index: int, inside: str = ""
    ) -> StateTypeMismatchError:
        """Return the error with step, state and key."""
        context = self._context
        path = f"{inside}.{error.path}" if inside and error.path else inside + error.path
        return StateTypeMismatchError(
            path, error.value, error.type_info, context.step, self.name, context.key_at(index)
        )
