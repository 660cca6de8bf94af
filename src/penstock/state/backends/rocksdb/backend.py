"""The rocksdb backend: state in RocksDB on each host, which may be larger than memory."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from penstock.errors import CorruptStateError, PenstockError
from penstock.state.backends.changelog import ChangelogBackend, check_written_by
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.lmdb.block_store import open_blocks
from penstock.state.backends.local_stores import LocalSlot, discard, lock_slot, private_path
from penstock.state.backends.refs import (
    LocalSnapshot,
    SstFiles,
    StagedName,
    StateLocation,
    StateRef,
)
from penstock.state.backends.rocksdb.database import CACHE_BYTES, RocksDbDatabase
from penstock.state.backends.rocksdb.sst_files import (
    download_sst_files,
    link_sst_files,
    upload_sst_files,
)
from penstock.state.backends.rocksdb.store import RocksDbStore
from penstock.state.backends.store import StateStore
from penstock.state.backends.version_marker import VersionMarker
from penstock.state.files import read_file
from penstock.state.local_dir import is_full, writing_to
from penstock.state.merge import overlay_of

logger = logging.getLogger("penstock.state")

_SNAPSHOT = "snapshot"

GetFiles = Callable[[StateLocation, SstFiles, Path], None]
"""Puts the files of a base into a new directory, verified."""


class RocksDbBackend(ChangelogBackend):
    """Keeps the newest published version in a local RocksDB, SST files and deltas in files.

    A compaction uploads the SST files of a snapshot that the previous base does not have.
    """

    wants_snapshots: ClassVar[bool] = True
    exceeds_memory: ClassVar[bool] = True

    def __init__(
        self, *, durable: bool = False, incremental: bool = True, cache_bytes: int = CACHE_BYTES
    ) -> None:
        super().__init__(durable=durable, incremental=incremental)
        self._cache_bytes = cache_bytes

    def open(self, location: StateLocation, ref: StateRef) -> RocksDbStore:
        check_written_by("rocksdb", ref, "base", "inline")
        with writing_to(location.local_dir):
            return self._open(location, ref)

    def _open(self, location: StateLocation, ref: StateRef) -> RocksDbStore:
        slot = lock_slot(location.local_dir, "rocksdb")
        if slot is None:
            return self._open_private(location, ref)
        try:
            database, rebuilt = self._open_slot(slot.path, location, ref)
        except BaseException:
            slot.release()
            raise
        if database is None:
            # Usually the local store is ahead: this task is a zombie, or opens an old version.
            slot.release()
            return self._open_private(location, ref)
        return RocksDbStore(
            database,
            ref.version,
            location.local_dir,
            lambda good: _release(slot, good),
            was_rebuilt=rebuilt,
        )

    def compact(
        self,
        location: StateLocation,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None = None,
    ) -> StateRef | None:
        check_written_by("rocksdb", ref, "base", "inline")
        compacted = None
        if not self._nothing_to_compact(ref):
            compacted = self._upload_snapshot(location, ref, name, snapshot)
            if compacted is None:
                compacted = self._upload_rebuilt(location, ref, name)
        if snapshot is not None:
            discard(Path(snapshot.path))
        return compacted

    def entries(
        self, location: StateLocation, ref: StateRef, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        with writing_to(location.local_dir):
            store = self._open_private(location, ref)
        with store:
            yield from store.scan_between(start, stop)

    def open_files(self, location: StateLocation, ref: StateRef, files: HostFiles) -> StateStore:
        check_written_by("rocksdb", ref, "base", "inline")
        if ref.tables is None:
            return open_blocks(location, ref, files)
        # Deltas are not applied: that takes long, and is done again for every version.
        base = self._open_private(
            replace(location, local_dir=files.directory),
            StateRef(ref.tables.version, tables=ref.tables),
            partial(link_sst_files, files=files),
        )
        try:
            return open_blocks(location, ref, files, base)
        except BaseException:
            base.close()
            raise

    def load(
        self, entries: Iterator[tuple[bytes, bytes]], location: StateLocation, name: StagedName
    ) -> StateRef:
        path = private_path(location.local_dir)
        try:
            with (
                writing_to(location.local_dir),
                closing(RocksDbDatabase(path, self._cache_bytes)) as database,
            ):
                database.apply(entries)
                database.write_version_marker(VersionMarker(0))
                database.snapshot(path / _SNAPSHOT)
            snapshot = path / _SNAPSHOT
            return StateRef(
                0, tables=upload_sst_files(snapshot, location, 0, name, durable=self._durable)
            )
        finally:
            discard(path)

    def _open_private(
        self, location: StateLocation, ref: StateRef, get_files: GetFiles = download_sst_files
    ) -> RocksDbStore:
        path = private_path(location.local_dir)
        try:
            database = self._rebuild(path, location, ref, get_files)
        except BaseException:
            discard(path)
            raise
        return RocksDbStore(
            database,
            ref.version,
            location.local_dir,
            lambda _: discard(path),
            was_rebuilt=bool(ref.files),
        )

    def _open_slot(
        self, path: Path, location: StateLocation, ref: StateRef
    ) -> tuple[RocksDbDatabase | None, bool]:
        """Open the database in a slot at a ref's version; None if it is ahead, or not free.

        Returns also whether it was rebuilt from files.
        """
        database = None
        try:
            database = RocksDbDatabase(path, self._cache_bytes)
            marker = database.read_version_marker()
            if marker is not None and (marker.is_at(ref) or marker.reaches(ref)):
                _apply_deltas(database, marker, location, ref)
                return database, False
            is_unavailable = marker is not None and marker.is_ahead_of(ref)
        except PenstockError:
            _close(database)
            raise
        except Exception as error:
            # Torn, or half deleted: only a copy, so it is rebuilt, unless another process has it.
            if is_full(error):
                _close(database)
                raise
            is_unavailable = "/LOCK: " in str(error)
            if not is_unavailable:
                logger.warning(
                    "Local store %s is rebuilt, because it cannot be opened: %s", path, error
                )
        except BaseException:
            _close(database)
            raise
        _close(database)
        if is_unavailable:
            return None, False
        return self._rebuild(path, location, ref), bool(ref.files)

    def _rebuild(
        self,
        path: Path,
        location: StateLocation,
        ref: StateRef,
        get_files: GetFiles = download_sst_files,
    ) -> RocksDbDatabase:
        """Create a new database from base and deltas, whatever was there before."""
        check_written_by("rocksdb", ref, "base", "inline")
        discard(path)
        if ref.tables is not None:
            get_files(location, ref.tables, path)
        database = RocksDbDatabase(path, self._cache_bytes)
        try:
            marker = database.read_version_marker()
            if ref.tables is None:
                marker = VersionMarker(0)
            elif marker is None or marker.applying or marker.version != ref.tables.version:
                reason = f"its SST files hold {marker}, not version {ref.tables.version}"
                raise CorruptStateError(
                    str(location.shared_dir / ref.tables.files[-1].name), reason
                )
            _apply_deltas(database, marker, location, ref)
        except BaseException:
            database.close()
            raise
        return database

    def _upload_snapshot(
        self,
        location: StateLocation,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None,
    ) -> StateRef | None:
        """Upload the local snapshot that a task has taken; None if it is not available."""
        if snapshot is None or snapshot.version != ref.version:
            return None
        try:
            return self._upload(Path(snapshot.path), location, ref, name)
        except FileNotFoundError:
            # It is on another host, or was lost, or another compaction has used it.
            return None

    def _upload_rebuilt(self, location: StateLocation, ref: StateRef, name: StagedName) -> StateRef:
        path = private_path(location.local_dir)
        try:
            with (
                writing_to(location.local_dir),
                closing(self._rebuild(path, location, ref)) as database,
            ):
                database.snapshot(path / _SNAPSHOT)
            return self._upload(path / _SNAPSHOT, location, ref, name)
        finally:
            discard(path)

    def _upload(
        self, snapshot: Path, location: StateLocation, ref: StateRef, name: StagedName
    ) -> StateRef:
        known = ref.tables.files if self._incremental and ref.tables is not None else ()
        tables = upload_sst_files(
            snapshot, location, ref.version, name, known, durable=self._durable
        )
        return StateRef(ref.version, tables=tables)


def _apply_deltas(
    database: RocksDbDatabase, marker: VersionMarker, location: StateLocation, ref: StateRef
) -> None:
    """Apply the deltas that a database lacks, each announced by the version marker before."""
    for delta in ref.deltas:
        if delta.version > marker.version:
            # A delta is verified only when all of it was read, and cannot be undone.
            changes = overlay_of([read_file(location, delta)])
            database.write_version_marker(
                VersionMarker(marker.version, marker.file, (delta.version, delta.name))
            )
            database.apply((key, changes[key]) for key in sorted(changes))
            marker = VersionMarker(delta.version, delta.name)
            database.write_version_marker(marker)
    if marker.version != ref.version or ref.version == 0:
        database.write_version_marker(VersionMarker(ref.version, marker.file))


def _release(slot: LocalSlot, good: bool) -> None:
    if not good:
        discard(slot.path)
    slot.release()


def _close(database: RocksDbDatabase | None) -> None:
    if database is not None:
        database.close()
