"""Reads states from a savepoint, for any parallelism and backend."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import CorruptStateError
from penstock.savepoint.columns import timestamp_column, value_column
from penstock.state.files import verify_file
from penstock.state.key_groups import KeyGroupRange, routed_keys
from penstock.state.local_dir import writing_to
from penstock.state.registry.meta_info import (
    MAP_STATE,
    TIMERS,
    StateMetaInfo,
    registry_key,
    table_prefix,
)
from penstock.state.registry.migration import merged_registry, rewriter
from penstock.state.savepoint_file import SavepointFile
from penstock.storage.storages import storage_at
from penstock.storage.verified_files import download, temporary_directory, verify
from penstock.types.compatibility import Incompatible

Entry = tuple[bytes, bytes]


def entries_of(
    savepoint: Location,
    files: Sequence[SavepointFile],
    key_groups: KeyGroupRange,
    step: str = "",
    scratch: Path | None = None,
) -> Iterator[Entry]:
    """Iterate over the store entries of a range of key groups, ordered by key.

    ``files`` are those of all subtasks of one operator; files without these key groups are not
    opened. Every file is verified before it is used. A state that only some subtasks have migrated
    is returned in its newer type. ``step`` is for error messages. A file in a store is copied to
    ``scratch``, a local directory, for as long as it is read; one at a time.

    Raises:
        CorruptStateError: if a file is missing, damaged or another one.
        StateDeclaredTwiceError: if subtasks declare a state differently.
    """
    registry = _registry(files, step)
    for name in sorted(registry):
        yield registry_key(name), registry[name].encode()
    by_table = sorted(
        (file for file in files if _overlaps(file, key_groups)),
        key=lambda file: (registry[file.state].table, file.first_key_group),
    )
    for name, parts in groupby(by_table, key=lambda file: file.state):
        next_group = 0
        for part in parts:
            if part.first_key_group < next_group:
                place = str(savepoint / part.path)
                raise CorruptStateError(place, "another file holds the same key groups")
            next_group = part.stop_key_group
            with verified_copy(savepoint, part, scratch) as path:
                yield from _entries(path, part, registry[name], key_groups)


@contextlib.contextmanager
def verified_copy(savepoint: Location, file: SavepointFile, scratch: Path | None) -> Iterator[Path]:
    """Verify a file and return where it can be read; what is in a store is copied for that.

    Raises:
        CorruptStateError: it is missing, damaged or another one.
    """
    if isinstance(savepoint, Path):
        verify_file(savepoint / file.path, file.size, file.crc)
        yield savepoint / file.path
        return
    with temporary_directory(scratch) as directory:
        copy = directory / "part.parquet"
        with contextlib.nullcontext() if scratch is None else writing_to(scratch):
            download(storage_at(savepoint), file.path, copy, file.size, file.crc)
        yield copy


def verify_files(savepoint: Location, files: Iterable[SavepointFile]) -> None:
    """Verify size and checksum of files.

    Raises:
        CorruptStateError: if one is missing, damaged or another one.
    """
    for file in files:
        if isinstance(savepoint, StorageUrl):
            verify(storage_at(savepoint), file.path, file.size, file.crc)
        else:
            verify_file(savepoint / file.path, file.size, file.crc)


def _registry(files: Sequence[SavepointFile], step: str) -> dict[str, StateMetaInfo]:
    by_subtask: dict[int, dict[str, StateMetaInfo]] = {}
    for file in files:
        by_subtask.setdefault(file.subtask, {})[file.state] = file.info
    return merged_registry([by_subtask[subtask] for subtask in sorted(by_subtask)], step)


def _overlaps(file: SavepointFile, key_groups: KeyGroupRange) -> bool:
    return file.first_key_group < key_groups.stop and key_groups.start < file.stop_key_group


def _entries(
    path: Path, file: SavepointFile, info: StateMetaInfo, key_groups: KeyGroupRange
) -> Iterator[Entry]:
    rewrite = rewriter(file.info, info)
    assert not isinstance(rewrite, Incompatible)
    prefix = table_prefix(info.table)
    names = _stored_columns(file)
    with pq.ParquetFile(path, memory_map=True) as parquet:
        for group in row_groups_of(parquet, key_groups):
            table = _clipped(parquet.read_row_group(group, columns=names), key_groups)
            if table.num_rows:
                keys = [prefix + key for key in stored_keys(file, table)]
                values = _rewritten(stored_values(file, table), rewrite)
                yield from zip(keys, values, strict=True)


def _stored_columns(file: SavepointFile) -> list[str]:
    timestamps = [] if file.ttl is None else ["alive_since"]
    return ["key_group", "key_bytes", *_suffixes(file), "value", *timestamps]


def _suffixes(file: SavepointFile) -> list[str]:
    """Return the columns of the parts of a stored key that follow the encoded key."""
    windows = ["window_bytes"] if file.windows else []
    return [*windows, "map_key_bytes"] if file.kind in (MAP_STATE, TIMERS) else windows


def row_groups_of(parquet: pq.ParquetFile, key_groups: KeyGroupRange) -> Iterator[int]:
    """Iterate over the row groups that may hold some of the key groups."""
    column = parquet.schema_arrow.get_field_index("key_group")
    for group in range(parquet.metadata.num_row_groups):
        known = parquet.metadata.row_group(group).column(column).statistics
        if known.min < key_groups.stop and key_groups.start <= known.max:
            yield group


def _clipped(table: pa.Table, key_groups: KeyGroupRange) -> pa.Table:
    groups = table.column("key_group").to_numpy()
    start, stop = np.searchsorted(groups, [key_groups.start, key_groups.stop])
    return table.slice(start, stop - start)


def stored_keys(file: SavepointFile, table: pa.Table) -> list[bytes]:
    """Return the keys of rows as a store has them, without the number of the table."""
    groups = table.column("key_group").to_numpy().tolist()
    routed = routed_keys(table.column("key_bytes").to_pylist(), groups)
    suffixes = _suffixes(file)
    if not suffixes:
        return routed
    parts = [table.column(name).to_pylist() for name in suffixes]
    return [b"".join(key) for key in zip(routed, *parts, strict=True)]


def stored_values(file: SavepointFile, table: pa.Table) -> list[bytes]:
    """Return the values of rows as a store has them."""
    values = value_column(file.kind, file.type).from_arrow(_column(table, "value"))
    if file.ttl is None:
        return values
    return timestamp_column(file.kind).from_arrow(_column(table, "alive_since"), values)


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _rewritten(values: list[bytes], rewrite: Callable[[bytes], bytes] | None) -> list[bytes]:
    return values if rewrite is None else list(map(rewrite, values))
