"""The hashmap backend: state in LMDB on each host, changelog in the shared directory."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lmdb

from penstock.errors import CorruptStateError
from penstock.state.backends.changelog import ChangelogBackend, check_written_by
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.lmdb.block_store import BlockStore, open_blocks
from penstock.state.backends.lmdb.environment import MAP_SIZE, LmdbEnv
from penstock.state.backends.lmdb.store import HashMapStore, read_version_marker, update_store
from penstock.state.backends.local_stores import boot_id, discard, private_path
from penstock.state.backends.refs import LocalSnapshot, StagedName, StateLocation, StateRef
from penstock.state.delta import Block, blocks_of_entries
from penstock.state.files import BASE, file_name, read_file, write_file
from penstock.state.local_dir import writing_to
from penstock.state.merge import compacted, entries_of, overlay_of


class HashMapBackend(ChangelogBackend):
    """Keeps the newest published version in a local LMDB, base and deltas in files."""

    def __init__(
        self, *, durable: bool = False, incremental: bool = True, map_size: int = MAP_SIZE
    ) -> None:
        super().__init__(durable=durable, incremental=incremental)
        self._map_size = map_size

    def open(self, location: StateLocation, ref: StateRef) -> HashMapStore:
        check_written_by("hashmap", ref, "tables", "inline")
        with writing_to(location.local_dir):
            return self._open(location, ref)

    def _open(self, location: StateLocation, ref: StateRef) -> HashMapStore:
        path = location.local_dir / f"lmdb-{boot_id()}"
        try:
            store = self._open_at(path, location, ref)
        except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.PanicError):
            discard(path)
            store = self._open_at(path, location, ref)
        if store is not None:
            return store
        # The local store is ahead: this task is a zombie, or opens an old version.
        path = private_path(location.local_dir)
        store = self._open_at(path, location, ref, private=True)
        if store is None:
            raise CorruptStateError(str(path), f"it is not at version {ref.version}")
        return store

    def compact(
        self,
        location: StateLocation,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None = None,
    ) -> StateRef | None:
        if self._nothing_to_compact(ref):
            return None
        return self._write_base(location, ref.version, name, _all_blocks(location, ref))

    def entries(
        self, location: StateLocation, ref: StateRef, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        return entries_of(_all_blocks(location, ref), start, stop)

    def open_files(self, location: StateLocation, ref: StateRef, files: HostFiles) -> BlockStore:
        check_written_by("hashmap", ref, "tables", "inline")
        return open_blocks(location, ref, files)

    def load(
        self, entries: Iterator[tuple[bytes, bytes]], location: StateLocation, name: StagedName
    ) -> StateRef:
        return self._write_base(location, 0, name, blocks_of_entries(entries))

    def _write_base(
        self, location: StateLocation, version: int, name: StagedName, blocks: Iterator[Block]
    ) -> StateRef:
        file = file_name(version, name, BASE)
        return StateRef(
            version, write_file(location.shared_dir, file, version, blocks, durable=self._durable)
        )

    def _open_at(
        self, path: Path, location: StateLocation, ref: StateRef, *, private: bool = False
    ) -> HashMapStore | None:
        """Open a local store at a ref's version; None if the store is ahead."""
        env = LmdbEnv(path, self._map_size)
        txn, rebuilt = None, False
        try:
            txn = env.begin()
            if not _is_at(env, txn, ref):
                txn.abort()
                rebuilt = update_store(env, ref, partial(read_file, location))
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
    marker = read_version_marker(env, txn)
    return marker is not None and marker.is_at(ref)


def _all_blocks(location: StateLocation, ref: StateRef) -> Iterator[Block]:
    check_written_by("hashmap", ref, "tables", "inline")
    base = iter(()) if ref.base is None else read_file(location, ref.base)
    return compacted(base, overlay_of(read_file(location, delta) for delta in ref.deltas))
