"""State in LMDB on each host, with its changelog in the shared directory."""

# ruff: noqa: D102  the contract says what these methods do

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import lmdb

from penstock.errors import CorruptStateError
from penstock.state.backends.base import (
    FileRef,
    StagedName,
    StateBackend,
    StatePlace,
    StateRef,
)
from penstock.state.backends.hashmap_store import HashMapStore, bring_up, is_at, read_stamp
from penstock.state.backends.lmdb_env import MAP_SIZE, LmdbEnv, discard
from penstock.state.delta import Block, Delta, blocks_of, blocks_of_entries
from penstock.state.files import (
    BASE,
    DELTA,
    file_name,
    paths_of,
    read_file,
    sync_files,
    version_of,
    write_file,
)
from penstock.state.key_groups import KeyGroupRange
from penstock.state.merge import entries_of, folded, gathered, overlay_of

__all__ = ["HashMapBackend"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_private = count()


class HashMapBackend(StateBackend):
    """Keeps the newest published version in a local LMDB, base and deltas in files.

    ``durable`` syncs every file as it is written; otherwise ``sync`` does, when a checkpoint
    needs them.
    """

    def __init__(self, *, durable: bool = False, map_size: int = MAP_SIZE) -> None:
        self._durable = durable
        self._map_size = map_size

    def open(self, place: StatePlace, ref: StateRef) -> HashMapStore:
        path = place.local_dir / f"lmdb-{_boot_id()}"
        try:
            store = self._open_at(path, place, ref)
        except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.PanicError):
            discard(path)
            store = self._open_at(path, place, ref)
        if store is not None:
            return store
        # The place has gone on without us: this task is a zombie, or is asked for the past.
        path = place.local_dir / f"private-{os.getpid()}-{next(_private)}"
        store = self._open_at(path, place, ref, private=True)
        if store is None:
            raise CorruptStateError(str(path), f"it does not hold version {ref.version}")
        return store

    def stage(
        self, place: StatePlace, delta: Delta, name: StagedName, version: int
    ) -> FileRef | bytes | None:
        if not len(delta):
            return None
        file = file_name(version, name, DELTA)
        return write_file(place.shared_dir, file, version, blocks_of(delta), durable=self._durable)

    def publish(self, ref: StateRef, version: int, staged: FileRef | bytes | None) -> StateRef:
        if version <= ref.version:
            message = f"version {version} does not come after {ref.version}"
            raise ValueError(message)
        if staged is None:
            return StateRef(version, ref.base, ref.deltas)
        if not isinstance(staged, FileRef) or staged.version != version:
            message = f"expected a staged file of version {version}; got {staged!r}"
            raise ValueError(message)
        return StateRef(version, ref.base, (*ref.deltas, staged))

    def fold(self, place: StatePlace, ref: StateRef, name: StagedName) -> FileRef | None:
        if not ref.deltas:
            return None
        file = file_name(ref.version, name, BASE)
        blocks = _whole(place, ref)
        return write_file(place.shared_dir, file, ref.version, blocks, durable=self._durable)

    def rebase(self, ref: StateRef, base: FileRef | None) -> StateRef:
        if base is None or base.version > ref.version:
            return ref
        if ref.base is not None and base.version <= ref.base.version:
            return ref
        deltas = tuple(delta for delta in ref.deltas if delta.version > base.version)
        return StateRef(ref.version, base, deltas)

    def freeze(self, ref: StateRef) -> StateRef:
        return ref

    def files(self, place: StatePlace, ref: StateRef) -> list[Path]:
        return paths_of(place, ref)

    def sync(self, place: StatePlace, ref: StateRef) -> None:
        sync_files(self.files(place, ref))

    def restore(
        self,
        sources: Sequence[tuple[StatePlace, StateRef]],
        key_groups: KeyGroupRange,
        place: StatePlace,
        name: StagedName,
    ) -> StateRef:
        streams = [entries_of(_whole(source, ref)) for source, ref in sources]
        entries = gathered(streams, key_groups, str(place.shared_dir))
        file = file_name(0, name, BASE)
        blocks = blocks_of_entries(entries)
        return StateRef(0, write_file(place.shared_dir, file, 0, blocks, durable=self._durable))

    def drop(self, place: StatePlace, *keep: StateRef) -> list[Path]:
        if not keep or not place.shared_dir.is_dir():
            return []
        needed = {path for ref in keep for path in self.files(place, ref)}
        newest = max(ref.version for ref in keep)
        newest_base = max((ref.base.version for ref in keep if ref.base), default=0)
        dropped = []
        for path in sorted(place.shared_dir.iterdir()):
            version = version_of(path)
            if version is None or path in needed:
                continue
            # A task may be staging the next version, and a fold may be writing the next base.
            if version <= newest if path.suffix == DELTA else version < newest_base:
                path.unlink(missing_ok=True)
                dropped.append(path)
        return dropped

    def _open_at(
        self, path: Path, place: StatePlace, ref: StateRef, *, private: bool = False
    ) -> HashMapStore | None:
        """Open a local store at a ref's version; None if it is ahead of that."""
        env = LmdbEnv(path, self._map_size)
        txn = None
        try:
            txn = env.begin()
            if not is_at(read_stamp(env, txn), ref):
                txn.abort()
                bring_up(env, ref, partial(read_file, place))
                txn = env.begin()
                if not is_at(read_stamp(env, txn), ref):
                    txn.abort()
                    env.close()
                    return None
        except BaseException:
            if txn is not None:
                txn.abort()
            env.close()
            raise
        return HashMapStore(env, txn, ref.version, path if private else None)


def _whole(place: StatePlace, ref: StateRef) -> Iterator[Block]:
    base = iter(()) if ref.base is None else read_file(place, ref.base)
    return folded(base, overlay_of(read_file(place, delta) for delta in ref.deltas))


def _boot_id() -> str:
    # Unflushed files may be torn after a crash of the host: another boot, another directory.
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return "unknown"
