"""A RocksDB database on this host, with a column family for each table of the state."""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DataBlockIndexType,
    DBCompactionStyle,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
    UniversalCompactOptions,
)

from penstock.state.backends.version_marker import VersionMarker, decode_version_marker

CACHE_BYTES = 64 << 20

_PREFIX = 2
_MARKER = b"stamp"
_DEFAULT = "default"
_INCOMING = "incoming"
_TABLE_BYTES = 64 << 20
_TOO_MANY_TABLES = 16
_PAUSE_SECONDS = 0.005
_MOST_GARBAGE_PERCENT = 100


class RocksDbDatabase:
    """A database that is open in this process, and in no other.

    State is written only by ingesting sorted SST files; the log and the write buffer contain only
    the version marker. Writes survive ``kill -9``, in their order. They need not survive a crash of
    the host: after one the directory is not used.
    """

    __slots__ = ("_db", "_families", "_options", "_path", "_scans")

    def __init__(self, path: Path, cache_bytes: int = CACHE_BYTES) -> None:
        self._path = path
        self._options = _options(cache_bytes)
        self._scans: weakref.WeakSet[Generator[tuple[bytes, bytes]]] = weakref.WeakSet()
        path.mkdir(parents=True, exist_ok=True)
        is_there = (path / "CURRENT").exists()
        names = Rdict.list_cf(str(path), self._options) if is_there else [_DEFAULT]
        self._db = Rdict(str(path), self._options, dict.fromkeys(names, self._options))
        self._families = {
            bytes.fromhex(name): self._db.get_column_family(name)
            for name in names
            if name != _DEFAULT
        }

    @property
    def families(self) -> dict[bytes, Any]:
        """The column families, by the prefix of their keys."""
        return self._families

    def read_version_marker(self) -> VersionMarker | None:
        """Return the version marker, None in a new database."""
        data = self._db.get(_MARKER)
        return None if data is None else decode_version_marker(data)

    def write_version_marker(self, marker: VersionMarker) -> None:
        """Write the version marker."""
        self._db.put(_MARKER, marker.encode())

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put and delete (None) entries, sorted by key, by ingesting SST files."""
        into = IngestExternalFileOptions()
        into.set_move_files(True)
        for prefix, entries in groupby(changes, key=_prefix_of):
            family = self._families.get(prefix)
            if family is None:
                family = self._db.create_column_family(prefix.hex(), self._options)
                self._families[prefix] = family
            for table in self._tables(entries):
                family.ingest_external_file([table], into)
            _wait_for_compaction(family)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate, ordered by key, from ``start`` up to, not including, ``stop``.

        Raises:
            Exception: RocksDB's own, if an SST file is damaged.
        """
        scan = self._scan(start, stop)
        self._scans.add(scan)
        return scan

    def snapshot(self, path: Path) -> None:
        """Take a checkpoint of the database: a new directory of hard links."""
        # Creating the checkpoint flushes too, but holds the interpreter's lock meanwhile.
        self._db.flush(True)
        Checkpoint(self._db).create_checkpoint(str(path))

    def properties(self, names: Iterable[str]) -> dict[bytes, dict[str, int]]:
        """Return properties of each column family, by the prefix of its keys."""
        wanted = [(name, f"rocksdb.{name}") for name in names]
        return {
            prefix: {
                name: value
                for name, full in wanted
                if (value := family.property_int_value(full)) is not None
            }
            for prefix, family in self._families.items()
        }

    def close(self) -> None:
        """Close the database, and scans that have not ended."""
        # A live iterator would keep the database open and locked.
        for scan in list(self._scans):
            scan.close()
        for family in self._families.values():
            family.close()
        self._families = {}
        self._db.close()

    def _scan(self, start: bytes, stop: bytes | None) -> Generator[tuple[bytes, bytes]]:
        for prefix in sorted(self._families):
            if stop is not None and prefix >= stop:
                return
            if prefix < start and not start.startswith(prefix):
                continue
            low = start[len(prefix) :] if start.startswith(prefix) else b""
            high = stop[len(prefix) :] if stop is not None and stop.startswith(prefix) else None
            entries = self._families[prefix].iter()
            entries.seek(low)
            while entries.valid():
                key = entries.key()
                if high is not None and key >= high:
                    break
                yield prefix + key, entries.value()
                entries.next()
            entries.status()

    def _tables(self, entries: Iterable[tuple[bytes, bytes | None]]) -> Iterator[str]:
        """Write sorted entries of one family into SST files, one at a time."""
        path = str(self._path / _INCOMING)
        writer: SstFileWriter | None = None
        size = 0
        for key, value in entries:
            if writer is None:
                writer = SstFileWriter(self._options)
                writer.open(path)
                size = 0
            if value is None:
                del writer[key[_PREFIX:]]
            else:
                writer[key[_PREFIX:]] = value
                size += len(key) + len(value)
            if size >= _TABLE_BYTES:
                writer.finish()
                writer = None
                yield path
        if writer is not None:
            writer.finish()
            yield path


def _prefix_of(change: tuple[bytes, bytes | None]) -> bytes:
    return change[0][:_PREFIX]


def _wait_for_compaction(family: Any) -> None:
    """Wait for compaction if it lags: every SST file at level 0 makes every read slower.

    It runs while the database is open and is interrupted when it is closed, so with short tasks it
    might never complete.
    """
    while int(family.property_value("rocksdb.num-files-at-level0") or 0) >= _TOO_MANY_TABLES and (
        family.property_int_value("rocksdb.compaction-pending")
        or family.property_int_value("rocksdb.num-running-compactions")
    ):
        time.sleep(_PAUSE_SECONDS)


def _options(cache_bytes: int) -> Options:
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(cache_bytes))
    # Indexes and filters count as cache: memory stays bounded however large the state is.
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    tables.set_bloom_filter(10, False)
    tables.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(DBCompressionType.lz4())
    # With leveled compaction, small changes all over the key space soon rewrite every SST file, and
    # checkpoints upload them again: universal compaction halves the bytes, at the same task time.
    merging = UniversalCompactOptions()
    merging.max_size_amplification_percent = _MOST_GARBAGE_PERCENT
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_universal_compaction_options(merging)
    options.set_write_buffer_size(1 << 20)
    options.set_max_open_files(512)
    options.set_max_background_jobs(2)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_manifest_preallocation_size(1 << 16)
    return options
