"""Assigns tables to states, and collects the changes of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.errors import StateTypeChangedError
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.keyed.key_context import KeyContext
from penstock.state.keyed.stored_state import StoredState
from penstock.state.registry.meta_info import (
    StateMetaInfo,
    read_registry,
    registry_key,
    table_prefix,
)
from penstock.state.registry.migration import RewritingStore, rewriter
from penstock.state.ttl.cleanup import clean_up
from penstock.state.ttl.timestamps import prune_of
from penstock.types.compatibility import Incompatible


class StateRegistry:
    """The registry of a step's states, shared by all key contexts over one store.

    A state that the store holds under an older type is migrated when it is declared: from then on
    all reads return the new type, and the delta contains the whole rewritten table.
    """

    __slots__ = (
        "_is_cleaned_up",
        "_readers",
        "_registry",
        "_step",
        "_unregistered",
        "_unwritten",
        "store",
    )

    store: StateStore
    """The store, with migrated tables in their new type."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._readers: list[KeyContext] = []
        self._registry: dict[str, StateMetaInfo] = {}
        self._unregistered: dict[str, StateMetaInfo] = {}
        self._unwritten: dict[str, RewritingStore] = {}
        self._is_cleaned_up = False

    def add_reader(self, context: KeyContext) -> None:
        """Add a key context that reads from the store."""
        self._readers.append(context)

    def bind(self, store: StateStore) -> None:
        """Begin a micro-batch."""
        self.store = store
        self._registry = read_registry(store)
        self._unregistered = {}
        self._unwritten = {}
        self._is_cleaned_up = False

    def rocksdb_metrics(self, properties: Sequence[str]) -> dict[str, int]:
        """Return properties of the states' column families, under Flink's names."""
        by_prefix = self.store.properties(properties)
        tables = {name: table_prefix(info.table) for name, info in self._registry.items()}
        return {
            f"{state}.rocksdb.{name}": value
            for state, prefix in tables.items()
            for name, value in by_prefix.get(prefix, {}).items()
        }

    def table_of(self, state: StoredState) -> int:
        """Return the table of a state, which is assigned or migrated if necessary."""
        info = self._registry.get(state.name)
        if info is None:
            taken = (known.table for known in self._registry.values())
            info = self._register(state.name, state.info(max(taken, default=0) + 1))
        elif not state.matches(info):
            info = self._migrate(state, info)
        return info.table

    def take_changes(self, states: list[StoredState], delta: Delta) -> None:
        """Append the changes of the registry and of the tables of these states, in key order."""
        cleaned_up = self._clean_up(states)
        for name in sorted(self._unregistered):
            delta.keys.append(registry_key(name))
            delta.values.append(self._unregistered[name].encode())
        self._unregistered = {}
        for state in sorted(states, key=self.table_of):
            rewriting, found = self._unwritten.pop(state.name, None), cleaned_up.get(state.name)
            if rewriting is None and not found:
                state.take_changes(delta)
                continue
            changes = Delta()
            state.take_changes(changes)
            if found:
                changes.put_under(found)
            if rewriting is None:
                delta.extend(changes)
            else:
                rewriting.add_unwritten(table_prefix(self.table_of(state)), changes, delta)

    def _clean_up(self, states: list[StoredState]) -> dict[str, dict[bytes, bytes | None]]:
        """Look for expired values in a part of each table; once per micro-batch."""
        if self._is_cleaned_up:
            return {}
        self._is_cleaned_up = True
        now = self._readers[0].now
        found = {}
        for state in states:
            at_most = state.cleanup_size()
            if not at_most:
                continue
            info = self._registry[state.name]
            assert info.ttl is not None
            prefix, prune = table_prefix(info.table), prune_of(info.kind)
            cleanup = clean_up(self.store, prefix, info.ttl, prune, now, at_most)
            found[state.name] = cleanup.found
            if cleanup.ttl != info.ttl:
                self._register(state.name, msgspec.structs.replace(info, ttl=cleanup.ttl))
        return found

    def _register(self, name: str, info: StateMetaInfo) -> StateMetaInfo:
        self._registry[name] = self._unregistered[name] = info
        return info

    def _migrate(self, state: StoredState, known: StateMetaInfo) -> StateMetaInfo:
        declared = state.info(known.table, known.generation + 1)
        if known.ttl is not None and declared.ttl is not None:
            ttl = msgspec.structs.replace(declared.ttl, since=known.ttl.since)
            declared = msgspec.structs.replace(declared, ttl=ttl)
        rewrite = rewriter(known, declared)
        if isinstance(rewrite, Incompatible):
            raise StateTypeChangedError(
                self._step, state.name, str(known), str(declared), rewrite.reason
            )
        if rewrite is not None:
            if not isinstance(self.store, RewritingStore):
                self.store = RewritingStore(self.store)
                for context in self._readers:
                    context.store = self.store
            self.store.rewrite(table_prefix(known.table), rewrite)
            self._unwritten[state.name] = self.store
        return self._register(state.name, declared)
