"""Writes a subtask's state into a savepoint.

Tasks write files under unique names; the driver then renames the files of the successful attempts
to their final names. In a store they keep their names, and the driver deletes all others. Before
the savepoint's metadata exists, none of it counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO, Any
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import CorruptStateError
from penstock.savepoint.layout import (
    SavedOperator,
    columns_for,
    operator_dir,
    part_name,
    properties_of,
    state_dir,
)
from penstock.savepoint.part_files import PartFiles, part_files
from penstock.savepoint.tables import chunks, table_of
from penstock.state.files import sync_files
from penstock.state.registry.meta_info import (
    REGISTRY,
    StateMetaInfo,
    decode_info,
    registry_name,
    table_prefix,
)
from penstock.state.savepoint_file import SavepointFile
from penstock.state.ttl.timestamps import prune_of
from penstock.storage.storages import storage_at

_REGISTRY_PREFIX = table_prefix(REGISTRY)


def write_subtask(
    entries: Iterable[tuple[bytes, bytes]],
    operator: SavedOperator,
    savepoint: Location,
    subtask: int,
    name: str,
    now: int = 0,
    scratch: Path | None = None,
) -> list[SavepointFile]:
    """Write all states of a subtask, durably; return their files.

    Runs in a task. ``entries`` are those of its store in key order; one row group of them is held
    at a time. ``name`` is unique to the task attempt, so a retried task or a zombie interferes with
    no other. Values that have expired at ``now`` are left out if the state is configured so. A file
    for a store is written to ``scratch`` first, a local directory, and verified after the upload.

    Raises:
        CorruptStateError: if there are entries of a state that is not in the registry, or a file in
            a store does not read back as it was written.
    """
    parts = part_files(savepoint, subtask, name, scratch)
    writer = _SubtaskWriter(operator, parts, subtask, now)
    try:
        for prefix, keys, values in chunks(entries):
            if prefix == _REGISTRY_PREFIX:
                writer.register(keys, values)
            else:
                writer.write(prefix, keys, values)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def write_state(
    tables: Iterable[pa.Table],
    operator: SavedOperator,
    state: str,
    info: StateMetaInfo,
    savepoint: Location,
    subtask: int,
    name: str,
    scratch: Path | None = None,
) -> SavepointFile:
    """Write one state of a subtask, durably; return its file.

    Like `write_subtask`, for rows that are there already: their columns are those of the state, and
    they are in the order of stored keys.

    Raises:
        CorruptStateError: a file in a store does not read back as it was written.
    """
    parts = part_files(savepoint, subtask, name, scratch)
    part: _PartWriter | None = None
    try:
        path = parts.begin(PurePosixPath(operator_dir(operator.uid), state_dir(state)))
        properties = properties_of(operator, state, info, subtask)
        part = _PartWriter(path, table_prefix(info.table), info, operator.key_type, properties)
        for table in tables:
            part.write_table(table)
        size, crc = part.close()
        file = _file_of(part, state, info, subtask, parts.put(size, crc), size, crc)
        parts.complete()
    except BaseException:
        if part is not None:
            part.abort()
        parts.abort()
        raise
    return file


def finalize_files(savepoint: Location, files: Iterable[SavepointFile]) -> list[SavepointFile]:
    """Rename the files of the successful task attempts to their final names; remove all others.

    Called by the driver, before it writes the metadata, with the files of all subtasks. Calling it
    again with the same files, after a crash, has the same result. In a store nothing is renamed.

    Raises:
        CorruptStateError: a file is missing.
    """
    if isinstance(savepoint, StorageUrl):
        return _remove_others(savepoint, list(files))
    kept = []
    directories: set[Path] = set()
    for file in files:
        staged = savepoint / file.path
        final = staged.with_name(part_name(file.subtask))
        if staged != final:
            try:
                staged.replace(final)
            except FileNotFoundError:
                if not final.exists():
                    raise CorruptStateError(str(staged), "it is missing") from None
        directories.add(final.parent)
        kept.append(msgspec.structs.replace(file, path=final.relative_to(savepoint).as_posix()))
    named = {savepoint / file.path for file in kept}
    for directory in directories:
        for path in directory.glob("*.parquet"):
            if path not in named:
                path.unlink(missing_ok=True)
    sync_files(directories)
    return kept


def _remove_others(savepoint: StorageUrl, files: list[SavepointFile]) -> list[SavepointFile]:
    """Delete the files of task attempts that did not succeed, from a store."""
    storage = storage_at(savepoint)
    directories = {PurePosixPath(file.path).parent for file in files}
    found = {
        entry.path: entry.size
        for operator in sorted({directory.parts[0] for directory in directories})
        for entry in storage.entries(operator)
    }
    for file in files:
        # The listing is there anyway; the task has compared the content.
        if found.get(file.path) != file.size:
            reason = f"it has {found[file.path]} bytes" if file.path in found else "it is missing"
            raise CorruptStateError(storage.location(file.path), reason)
    named = {file.path for file in files}
    storage.delete_all(
        path
        for path in found
        if path not in named
        and path.endswith(".parquet")
        and PurePosixPath(path).parent in directories
    )
    return files


class _SubtaskWriter:
    def __init__(self, operator: SavedOperator, parts: PartFiles, subtask: int, now: int) -> None:
        self._now = now
        self._operator = operator
        self._parts = parts
        self._subtask = subtask
        self._registry: dict[bytes, tuple[str, StateMetaInfo]] = {}
        self._open: _PartWriter | None = None
        self._files: dict[bytes, SavepointFile] = {}

    def register(self, keys: list[bytes], values: list[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            info = decode_info(value)
            self._registry[table_prefix(info.table)] = registry_name(key), info

    def write(self, prefix: bytes, keys: list[bytes], values: list[bytes]) -> None:
        if self._open is None or self._open.prefix != prefix:
            self._close()
            self._open = self._begin(prefix)
        _, info = self._registry[prefix]
        if info.ttl is not None and info.ttl.in_full_snapshot:
            keys, values = _alive(keys, values, info.kind, self._now - info.ttl.millis)
        if keys:
            self._open.write(keys, values)

    def finish(self) -> list[SavepointFile]:
        self._close()
        for prefix in self._registry:
            if prefix not in self._files:
                # Declared and empty: the file records that the state exists, and its type.
                self._open = self._begin(prefix)
                self._close()
        self._parts.complete()
        return sorted(self._files.values(), key=lambda file: file.table)

    def abort(self) -> None:
        if self._open is not None:
            self._open.abort()
        self._parts.abort()

    def _begin(self, prefix: bytes) -> _PartWriter:
        if prefix not in self._registry:
            table = int.from_bytes(prefix, "big")
            reason = f"it holds entries of table {table}, which is not in its registry"
            where = f"of subtask {self._subtask} of {self._operator.uid!r}"
            raise CorruptStateError(where, reason)
        state, info = self._registry[prefix]
        path = self._parts.begin(PurePosixPath(operator_dir(self._operator.uid), state_dir(state)))
        properties = properties_of(self._operator, state, info, self._subtask)
        return _PartWriter(path, prefix, info, self._operator.key_type, properties)

    def _close(self) -> None:
        part, self._open = self._open, None
        if part is None:
            return
        size, crc = part.close()
        path = self._parts.put(size, crc)
        state, info = self._registry[part.prefix]
        self._files[part.prefix] = _file_of(part, state, info, self._subtask, path, size, crc)


def _file_of(
    part: _PartWriter,
    state: str,
    info: StateMetaInfo,
    subtask: int,
    path: str,
    size: int,
    crc: int,
) -> SavepointFile:
    return SavepointFile(
        state=state,
        kind=info.kind,
        type=info.type,
        generation=info.generation,
        table=info.table,
        subtask=subtask,
        path=path,
        rows=part.rows,
        size=size,
        crc=crc,
        first_key_group=part.first_key_group,
        stop_key_group=part.stop_key_group,
        windows=info.windows,
        ttl=info.ttl,
        queryable=info.queryable,
    )


def _alive(
    keys: list[bytes], values: list[bytes], kind: str, dead: int
) -> tuple[list[bytes], list[bytes]]:
    prune = prune_of(kind)
    left = [(key, prune(value, dead)[0]) for key, value in zip(keys, values, strict=True)]
    there = [(key, value) for key, value in left if value is not None]
    return [key for key, _ in there], [value for _, value in there]


class _PartWriter:
    """One Parquet file, row group by row group."""

    def __init__(
        self,
        path: Path,
        prefix: bytes,
        info: StateMetaInfo,
        key_type: str,
        properties: dict[str, str],
    ) -> None:
        self.prefix = prefix
        self.rows = 0
        self.first_key_group = 0
        self.stop_key_group = 0
        self._windows = info.windows
        self._columns = columns_for(info, key_type)
        self._schema = pa.schema(self._columns.fields, properties)
        self._file = _SummedFile(path)
        self._parquet = pq.ParquetWriter(
            self._file,
            self._schema,
            compression="zstd",
            use_dictionary=False,
            write_statistics=["key_group"],
        )

    def write(self, keys: list[bytes], values: list[bytes]) -> None:
        self.write_table(table_of(self._schema, self._columns, self._windows, keys, values))

    def write_table(self, table: pa.Table) -> None:
        groups = table.column("key_group")
        if not self.rows:
            self.first_key_group = groups[0].as_py()
        self.stop_key_group = groups[-1].as_py() + 1
        self.rows += table.num_rows
        self._parquet.write_table(table, row_group_size=table.num_rows)

    def close(self) -> tuple[int, int]:
        self._parquet.close()
        return self._file.finish()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            self._parquet.close()
        self._file.abort()


class _SummedFile:
    """A new file that computes its size and CRC-32 while Parquet writes it."""

    closed = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] = path.open("xb")
        self._size = 0
        self._crc = 0

    def write(self, data: Any) -> int:
        self._crc = crc32(data, self._crc)
        self._size += len(data)
        self._file.write(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Do nothing: the file is closed by ``finish`` or ``abort``."""

    def finish(self) -> tuple[int, int]:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._size, self._crc

    def abort(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # of a full disk
            self._file.close()
