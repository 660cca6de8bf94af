"""State in LMDB on each host, with its changelog in the shared directory."""

# ruff: noqa: D102  the contract says what these methods do

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lmdb

from penstock.errors import CorruptStateError
from penstock.state.backends.base import LocalSnapshot, StagedName, StatePlace, StateRef
from penstock.state.backends.changelog import ChangelogBackend, check_no_other
from penstock.state.backends.hashmap_store import HashMapStore, bring_up, read_stamp
from penstock.state.backends.lmdb_env import MAP_SIZE, LmdbEnv
from penstock.state.backends.local_stores import boot_id, discard, private_path
from penstock.state.delta import Block, blocks_of_entries
from penstock.state.files import BASE, file_name, read_file, write_file
from penstock.state.merge import entries_of, folded, overlay_of

__all__ = ["HashMapBackend"]


class HashMapBackend(ChangelogBackend):
    """Keeps the newest published version in a local LMDB, base and deltas in files."""

    def __init__(
        self, *, durable: bool = False, incremental: bool = True, map_size: int = MAP_SIZE
    ) -> None:
        super().__init__(durable=durable, incremental=incremental)
        self._map_size = map_size

    def open(self, place: StatePlace, ref: StateRef) -> HashMapStore:
        check_no_other(ref, "tables", "inline")
        path = place.local_dir / f"lmdb-{boot_id()}"
        try:
            store = self._open_at(path, place, ref)
        except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.PanicError):
            discard(path)
            store = self._open_at(path, place, ref)
        if store is not None:
            return store
        # The place has gone on without us: this task is a zombie, or is asked for the past.
        path = private_path(place.local_dir)
        store = self._open_at(path, place, ref, private=True)
        if store is None:
            raise CorruptStateError(str(path), f"it does not hold version {ref.version}")
        return store

    def fold(
        self,
        place: StatePlace,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None = None,
    ) -> StateRef | None:
        if self._nothing_to_fold(ref):
            return None
        return self._based_on(place, ref.version, name, _whole(place, ref))

    def entries(self, place: StatePlace, ref: StateRef) -> Iterator[tuple[bytes, bytes]]:
        return entries_of(_whole(place, ref))

    def load(
        self, entries: Iterator[tuple[bytes, bytes]], place: StatePlace, name: StagedName
    ) -> StateRef:
        return self._based_on(place, 0, name, blocks_of_entries(entries))

    def _based_on(
        self, place: StatePlace, version: int, name: StagedName, blocks: Iterator[Block]
    ) -> StateRef:
        file = file_name(version, name, BASE)
        return StateRef(
            version, write_file(place.shared_dir, file, version, blocks, durable=self._durable)
        )

    def _open_at(
        self, path: Path, place: StatePlace, ref: StateRef, *, private: bool = False
    ) -> HashMapStore | None:
        """Open a local store at a ref's version; None if it is ahead of that."""
        env = LmdbEnv(path, self._map_size)
        txn, rebuilt = None, False
        try:
            txn = env.begin()
            if not _is_at(env, txn, ref):
                txn.abort()
                rebuilt = bring_up(env, ref, partial(read_file, place))
                txn = env.begin()
                if not _is_at(env, txn, ref):
                    txn.abort()
                    env.close()
                    return None
        except BaseException:
            if txn is not None:
                txn.abort()
            env.close()
            raise
        kept = path if private else None
        return HashMapStore(env, txn, ref.version, kept, was_rebuilt=rebuilt)


def _is_at(env: LmdbEnv, txn: Any, ref: StateRef) -> bool:
    stamp = read_stamp(env, txn)
    return stamp is not None and stamp.is_at(ref)


def _whole(place: StatePlace, ref: StateRef) -> Iterator[Block]:
    check_no_other(ref, "tables", "inline")
    base = iter(()) if ref.base is None else read_file(place, ref.base)
    return folded(base, overlay_of(read_file(place, delta) for delta in ref.deltas))
