"""The tables of one store: which state has which, and what is written of that anew."""

from __future__ import annotations

import msgspec

from penstock.errors import StateTypeChangedError
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.evolution import Incompatible
from penstock.state.migration import RewritingStore, rewriter
from penstock.state.scope import KeyScope
from penstock.state.stamps import prune_of
from penstock.state.sweep import sweep
from penstock.state.table import (
    TableInfo,
    TableState,
    read_registry,
    registry_key,
    table_prefix,
)

__all__ = ["Tables"]


class Tables:
    """The registry of a step's states, shared by all scopes over one store.

    A state that the store holds under an older type is migrated where it is declared: from then on
    all reads show the new type, and the delta holds the whole table rewritten.
    """

    __slots__ = (
        "_is_swept",
        "_registry",
        "_scopes",
        "_step",
        "_unregistered",
        "_unwritten",
        "store",
    )

    store: StateStore
    """What the tables are in, as it reads now: migrated tables in their new type."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._scopes: list[KeyScope] = []
        self._registry: dict[str, TableInfo] = {}
        self._unregistered: dict[str, TableInfo] = {}
        self._unwritten: dict[str, RewritingStore] = {}
        self._is_swept = False

    def read_by(self, scope: KeyScope) -> None:
        """Let a scope read what is in the tables."""
        self._scopes.append(scope)

    def bind(self, store: StateStore) -> None:
        """Begin a micro-batch."""
        self.store = store
        self._registry = read_registry(store)
        self._unregistered = {}
        self._unwritten = {}
        self._is_swept = False

    def table_of(self, state: TableState) -> int:
        """Return the table of a state, which it is given, or which is migrated, if need be."""
        info = self._registry.get(state.name)
        if info is None:
            taken = (known.table for known in self._registry.values())
            info = self._register(state.name, state.info(max(taken, default=0) + 1))
        elif not state.is_as(info):
            info = self._migrate(state, info)
        return info.table

    def take_changes(self, states: list[TableState], delta: Delta) -> None:
        """Append what is new in the registry and in the tables of these states, in key order."""
        swept = self._sweep(states)
        for name in sorted(self._unregistered):
            delta.keys.append(registry_key(name))
            delta.values.append(self._unregistered[name].encode())
        self._unregistered = {}
        for state in sorted(states, key=self.table_of):
            rewriting, found = self._unwritten.pop(state.name, None), swept.get(state.name)
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

    def _sweep(self, states: list[TableState]) -> dict[str, dict[bytes, bytes | None]]:
        """Look for what has expired, a part of each table at a time; once per micro-batch."""
        if self._is_swept:
            return {}
        self._is_swept = True
        now = self._scopes[0].now
        found = {}
        for state in states:
            at_most = state.to_sweep()
            if not at_most:
                continue
            info = self._registry[state.name]
            assert info.ttl is not None
            prefix, prune = table_prefix(info.table), prune_of(info.kind)
            swept = sweep(self.store, prefix, info.ttl, prune, now, at_most)
            found[state.name] = swept.found
            if swept.ttl != info.ttl:
                self._register(state.name, msgspec.structs.replace(info, ttl=swept.ttl))
        return found

    def _register(self, name: str, info: TableInfo) -> TableInfo:
        self._registry[name] = self._unregistered[name] = info
        return info

    def _migrate(self, state: TableState, known: TableInfo) -> TableInfo:
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
                for scope in self._scopes:
                    scope.store = self.store
            self.store.rewrite(table_prefix(known.table), rewrite)
            self._unwritten[state.name] = self.store
        return self._register(state.name, declared)
