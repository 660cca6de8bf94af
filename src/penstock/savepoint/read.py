"""Read states back out of a savepoint, for whatever parallelism and backend comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptStateError
from penstock.savepoint.columns import value_column
from penstock.savepoint.stamp_columns import stamp_column
from penstock.state.evolution import Incompatible
from penstock.state.key_groups import KeyGroupRange, routed_keys
from penstock.state.migration import merged_registry, rewriter
from penstock.state.savepoint_file import SavepointFile
from penstock.state.table import MAP_STATE, TIMERS, TableInfo, registry_key, table_prefix

__all__ = ["entries_of", "verify_files"]

Entry = tuple[bytes, bytes]

_READ_AT_ONCE = 1 << 20


def entries_of(
    savepoint: Path, files: Sequence[SavepointFile], key_groups: KeyGroupRange, step: str = ""
) -> Iterator[Entry]:
    """Iterate over the store entries of a range of key groups, ordered by key.

    ``files`` are those of all subtasks of one operator; what has none of the key groups is not
    opened. Every file is proven before anything in it is used. A state that some subtasks had
    migrated and others had not comes out in its newer type. ``step`` is for messages.

    Raises:
        CorruptStateError: if a file is missing, damaged or another one.
        StateDeclaredTwiceError: if subtasks disagree on what a state is.
    """
    registry = _registry(files, step)
    for name in sorted(registry):
        yield registry_key(name), registry[name].encode()
    by_table = sorted(
        (file for file in files if _overlaps(file, key_groups)),
        key=lambda file: (registry[file.state].table, file.first_key_group),
    )
    for name, parts in groupby(by_table, key=lambda file: file.state):
        behind = 0
        for part in parts:
            path = savepoint / part.path
            if part.first_key_group < behind:
                raise CorruptStateError(str(path), "another file holds the same key groups")
            behind = part.stop_key_group
            _prove(path, part)
            yield from _entries(path, part, registry[name], key_groups)


def verify_files(savepoint: Path, files: Iterable[SavepointFile]) -> None:
    """Read files from end to end and check that they are those that were written.

    Raises:
        CorruptStateError: if one is missing, damaged or another one.
    """
    for file in files:
        _prove(savepoint / file.path, file)


def _registry(files: Sequence[SavepointFile], step: str) -> dict[str, TableInfo]:
    by_subtask: dict[int, dict[str, TableInfo]] = {}
    for file in files:
        by_subtask.setdefault(file.subtask, {})[file.state] = file.info
    return merged_registry([by_subtask[subtask] for subtask in sorted(by_subtask)], step)


def _overlaps(file: SavepointFile, key_groups: KeyGroupRange) -> bool:
    return file.first_key_group < key_groups.stop and key_groups.start < file.stop_key_group


def _prove(path: Path, file: SavepointFile) -> None:
    size = crc = 0
    try:
        with path.open("rb") as data:
            while block := data.read(_READ_AT_ONCE):
                size += len(block)
                crc = crc32(block, crc)
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    if (size, crc) != (file.size, file.crc):
        raise CorruptStateError(
            str(path),
            f"it has size {size} and checksum {crc:08x}, not {file.size} and {file.crc:08x}",
        )


def _entries(
    path: Path, file: SavepointFile, info: TableInfo, key_groups: KeyGroupRange
) -> Iterator[Entry]:
    behind = ["window_bytes"] if file.windows else []
    behind += ["map_key_bytes"] if file.kind in (MAP_STATE, TIMERS) else []
    drain = value_column(file.kind, file.type).drain
    stamps = None if file.ttl is None else stamp_column(file.kind)
    rewrite = rewriter(file.info, info)
    assert not isinstance(rewrite, Incompatible)
    prefix = table_prefix(info.table)
    names = ["key_group", "key_bytes", "value", *behind]
    names += [] if stamps is None else ["alive_since"]
    with pq.ParquetFile(path, memory_map=True) as parquet:
        for group in row_groups_of(parquet, key_groups):
            table = _clipped(parquet.read_row_group(group, columns=names), key_groups)
            if not table.num_rows:
                continue
            keys = _store_keys(prefix, table, behind)
            values = drain(_column(table, "value"))
            if stamps is not None:
                values = stamps.drain(_column(table, "alive_since"), values)
            yield from zip(keys, _rewritten(values, rewrite), strict=True)


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


def _store_keys(prefix: bytes, table: pa.Table, behind: list[str]) -> list[bytes]:
    """Put keys together again; ``behind`` names the columns of what follows the encoded key."""
    groups = table.column("key_group").to_numpy().tolist()
    routed = routed_keys(table.column("key_bytes").to_pylist(), groups)
    if not behind:
        return [prefix + key for key in routed]
    parts = [table.column(name).to_pylist() for name in behind]
    return [prefix + b"".join(key) for key in zip(routed, *parts, strict=True)]


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _rewritten(values: list[bytes], rewrite: Callable[[bytes], bytes] | None) -> list[bytes]:
    return values if rewrite is None else list(map(rewrite, values))
