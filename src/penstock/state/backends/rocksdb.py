"""State in RocksDB on each host, larger than memory, with its files in the shared directory."""

# ruff: noqa: D102  the contract says what these methods do

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from penstock.errors import CorruptStateError, PenstockError
from penstock.state.backends.base import LocalSnapshot, StagedName, StatePlace, StateRef
from penstock.state.backends.changelog import ChangelogBackend, check_no_other
from penstock.state.backends.local_slots import LocalSlot, take_slot
from penstock.state.backends.local_stores import discard, private_path
from penstock.state.backends.rocksdb_store import RocksDbStore
from penstock.state.backends.rocksdb_tables import bring_tables, send_tables
from penstock.state.backends.rocksdb_tree import CACHE_BYTES, RocksDbTree
from penstock.state.backends.stamp import Stamp
from penstock.state.files import read_file
from penstock.state.merge import overlay_of

__all__ = ["RocksDbBackend"]

logger = logging.getLogger("penstock.state")

_SNAPSHOT = "snapshot"


class RocksDbBackend(ChangelogBackend):
    """Keeps the newest published version in a local RocksDB, its tables and deltas in files.

    A fold sends those tables of a snapshot that the base before it does not list already.
    """

    wants_snapshots: ClassVar[bool] = True

    def __init__(
        self, *, durable: bool = False, incremental: bool = True, cache_bytes: int = CACHE_BYTES
    ) -> None:
        super().__init__(durable=durable, incremental=incremental)
        self._cache_bytes = cache_bytes

    def open(self, place: StatePlace, ref: StateRef) -> RocksDbStore:
        check_no_other(ref, "base", "inline")
        slot = take_slot(place.local_dir, "rocksdb")
        if slot is None:
            return self._open_private(place, ref)
        try:
            tree, rebuilt = self._bring_up(slot.path, place, ref)
        except BaseException:
            slot.release()
            raise
        if tree is None:
            # Mostly the place has gone on without us: this task is a zombie, or asks for the past.
            slot.release()
            return self._open_private(place, ref)
        return RocksDbStore(
            tree,
            ref.version,
            place.local_dir,
            lambda good: _leave(slot, good),
            was_rebuilt=rebuilt,
        )

    def fold(
        self,
        place: StatePlace,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None = None,
    ) -> StateRef | None:
        check_no_other(ref, "base", "inline")
        folded = None
        if not self._nothing_to_fold(ref):
            folded = self._send_snapshot(place, ref, name, snapshot)
            if folded is None:
                folded = self._send_rebuilt(place, ref, name)
        if snapshot is not None:
            discard(Path(snapshot.path))
        return folded

    def entries(self, place: StatePlace, ref: StateRef) -> Iterator[tuple[bytes, bytes]]:
        with self._open_private(place, ref) as store:
            yield from store.scan(b"")

    def load(
        self, entries: Iterator[tuple[bytes, bytes]], place: StatePlace, name: StagedName
    ) -> StateRef:
        path = private_path(place.local_dir)
        try:
            tree = RocksDbTree(path, self._cache_bytes)
            try:
                tree.apply(entries)
                tree.write_stamp(Stamp(0))
                tree.snapshot(path / _SNAPSHOT)
            finally:
                tree.close()
            snapshot = path / _SNAPSHOT
            return StateRef(0, tables=send_tables(snapshot, place, 0, name, durable=self._durable))
        finally:
            discard(path)

    def _open_private(self, place: StatePlace, ref: StateRef) -> RocksDbStore:
        path = private_path(place.local_dir)
        try:
            tree = self._rebuild(path, place, ref)
        except BaseException:
            discard(path)
            raise
        return RocksDbStore(
            tree,
            ref.version,
            place.local_dir,
            lambda _: discard(path),
            was_rebuilt=bool(ref.files),
        )

    def _bring_up(
        self, path: Path, place: StatePlace, ref: StateRef
    ) -> tuple[RocksDbTree | None, bool]:
        """Open the database in a slot at a ref's version; None if it is ahead, or not free.

        Tells too whether it had to be made anew out of files.
        """
        tree = None
        try:
            tree = RocksDbTree(path, self._cache_bytes)
            stamp = tree.read_stamp()
            if stamp is not None and (stamp.is_at(ref) or stamp.reaches(ref)):
                _apply_deltas(tree, stamp, place, ref)
                return tree, False
            cannot_be_had = stamp is not None and stamp.is_ahead_of(ref)
        except PenstockError:
            _close(tree)
            raise
        except Exception as error:
            # Torn, or half deleted: whatever ails it, a new one is as good. Unless it is open.
            cannot_be_had = "/LOCK: " in str(error)
            if not cannot_be_had:
                logger.warning("%s: made anew, because it cannot be used: %s", path, error)
        except BaseException:
            _close(tree)
            raise
        _close(tree)
        if cannot_be_had:
            return None, False
        return self._rebuild(path, place, ref), bool(ref.files)

    def _rebuild(self, path: Path, place: StatePlace, ref: StateRef) -> RocksDbTree:
        """Make a new database out of base and deltas, whatever was there before."""
        check_no_other(ref, "base", "inline")
        discard(path)
        if ref.tables is not None:
            bring_tables(place, ref.tables, path)
        tree = RocksDbTree(path, self._cache_bytes)
        try:
            stamp = tree.read_stamp()
            if ref.tables is None:
                stamp = Stamp(0)
            elif stamp is None or stamp.rising or stamp.version != ref.tables.version:
                reason = f"its tables hold {stamp}, not version {ref.tables.version}"
                raise CorruptStateError(str(place.shared_dir / ref.tables.files[-1].name), reason)
            _apply_deltas(tree, stamp, place, ref)
        except BaseException:
            tree.close()
            raise
        return tree

    def _send_snapshot(
        self, place: StatePlace, ref: StateRef, name: StagedName, snapshot: LocalSnapshot | None
    ) -> StateRef | None:
        """Send what a task kept for us; None if it cannot be had."""
        if snapshot is None or snapshot.version != ref.version:
            return None
        try:
            return self._send(Path(snapshot.path), place, ref, name)
        except FileNotFoundError:
            # It is on another host, or was lost, or another fold has used it up.
            return None

    def _send_rebuilt(self, place: StatePlace, ref: StateRef, name: StagedName) -> StateRef:
        path = private_path(place.local_dir)
        try:
            tree = self._rebuild(path, place, ref)
            try:
                tree.snapshot(path / _SNAPSHOT)
            finally:
                tree.close()
            return self._send(path / _SNAPSHOT, place, ref, name)
        finally:
            discard(path)

    def _send(self, snapshot: Path, place: StatePlace, ref: StateRef, name: StagedName) -> StateRef:
        known = ref.tables.files if self._incremental and ref.tables is not None else ()
        tables = send_tables(snapshot, place, ref.version, name, known, durable=self._durable)
        return StateRef(ref.version, tables=tables)


def _apply_deltas(tree: RocksDbTree, stamp: Stamp, place: StatePlace, ref: StateRef) -> None:
    """Take in the deltas a database lacks, saying before each what it is about to become."""
    for delta in ref.deltas:
        if delta.version > stamp.version:
            # A delta is proven when all of it was read, and cannot be taken back.
            changes = overlay_of([read_file(place, delta)])
            tree.write_stamp(Stamp(stamp.version, stamp.file, (delta.version, delta.name)))
            tree.apply((key, changes[key]) for key in sorted(changes))
            stamp = Stamp(delta.version, delta.name)
            tree.write_stamp(stamp)
    if stamp.version != ref.version or ref.version == 0:
        tree.write_stamp(Stamp(ref.version, stamp.file))


def _leave(slot: LocalSlot, good: bool) -> None:
    if not good:
        discard(slot.path)
    slot.release()


def _close(tree: RocksDbTree | None) -> None:
    if tree is not None:
        tree.close()
