"""The keyed state of one operator in a snapshot, in parts that can be read independently.

A part is what one subtask has written. It can be sent to a task, and is opened there: its files are
linked or copied into a directory of the reader, and verified.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.storage_url import Location
from penstock.savepoint.read import Entry, stored_keys, stored_values, verified_copy
from penstock.savepoint.tables import chunks, table_of
from penstock.snapshots.keyed_state import KeyedState
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.refs import StateLocation, StateRef
from penstock.state.backends.registry import create_state_backend
from penstock.state.backends.store import StateStore
from penstock.state.key_groups import KeyGroupRange
from penstock.state.registry.meta_info import StateMetaInfo, read_registry, table_prefix
from penstock.state.registry.migration import rewriter
from penstock.state.savepoint_file import SavepointFile
from penstock.types.compatibility import Incompatible

_ROW_GROUPS_KEPT = 4


class StatePart(ABC):
    """What one subtask has written of the keyed state of an operator."""

    subtask: int
    key_groups: KeyGroupRange

    @property
    @abstractmethod
    def file_bytes(self) -> int:
        """The size of its files."""

    @abstractmethod
    def open(self, files: HostFiles) -> OpenPart:
        """Open it for reading, by any thread; versions opened later can share `files`.

        Raises:
            CorruptStateError: a file is missing, damaged or another one.
        """


class OpenPart(ABC):
    """A part that is open for reading."""

    registry: Mapping[str, StateMetaInfo]
    """The states that this subtask has declared, by name."""

    @abstractmethod
    def entries(self, state: KeyedState, start: bytes, stop: bytes | None) -> Iterator[Entry]:
        """Iterate over the store entries of a state, ordered by key.

        `start` and `stop` are stored keys without the table: key group, length, key, and what
        follows. Values are in the newest type of the state.
        """

    def get(self, state: KeyedState, key: bytes) -> Entry | None:
        """Return the store entry of a stored key without the table, None if there is none."""
        return next(iter(self.entries(state, key, key + b"\0")), None)

    def tables(self, state: KeyedState, start: bytes, stop: bytes | None) -> Iterator[pa.Table]:
        """Iterate over the rows of a state, with its schema."""
        for _, keys, values in chunks(self.entries(state, start, stop)):
            yield table_of(state.schema, state.columns, state.info.windows, keys, values)

    def prepare(self) -> None:
        """Do ahead, in small steps, what look-ups would do."""
        return

    @abstractmethod
    def close(self) -> None:
        """Close it; the files stay with the reader."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class CheckpointPart(StatePart):
    """A subtask's state in a checkpoint, or of a running job."""

    subtask: int
    key_groups: KeyGroupRange
    backend: str
    location: StateLocation
    ref: StateRef

    @property
    def file_bytes(self) -> int:
        """The size of its files, and of what the metadata holds."""
        return sum(file.size for file in self.ref.files) + len(self.ref.inline or b"")

    def open(self, files: HostFiles) -> OpenPart:
        """Open it for reading."""
        store = create_state_backend(self.backend).open_files(self.location, self.ref, files)
        return _OpenStore(store)


class _OpenStore(OpenPart):
    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.registry = read_registry(store)

    def entries(self, state: KeyedState, start: bytes, stop: bytes | None) -> Iterator[Entry]:
        mine = self.registry.get(state.name)
        if mine is None:
            return
        prefix = table_prefix(mine.table)
        last = table_prefix(mine.table + 1) if stop is None else prefix + stop
        found = self._store.scan_between(prefix + start, last)
        rewrite = rewriter(mine, state.info)
        assert not isinstance(rewrite, Incompatible)
        if rewrite is None and mine.table == state.info.table:
            yield from found
            return
        moved = table_prefix(state.info.table)
        for key, value in found:
            yield moved + key[2:], value if rewrite is None else rewrite(value)

    def get(self, state: KeyedState, key: bytes) -> Entry | None:
        mine = self.registry.get(state.name)
        value = None if mine is None else self._store.get(table_prefix(mine.table) + key)
        if mine is None or value is None:
            return None
        rewrite = rewriter(mine, state.info)
        assert not isinstance(rewrite, Incompatible)
        return table_prefix(state.info.table) + key, value if rewrite is None else rewrite(value)

    def prepare(self) -> None:
        self._store.prepare()

    def close(self) -> None:
        self._store.close()


@dataclass(frozen=True, slots=True)
class SavepointPart(StatePart):
    """A subtask's files in a savepoint."""

    subtask: int
    key_groups: KeyGroupRange
    savepoint: Location
    files: tuple[SavepointFile, ...]

    @property
    def file_bytes(self) -> int:
        """The size of its files."""
        return sum(file.size for file in self.files)

    def open(self, files: HostFiles) -> OpenPart:
        """Open it for reading; a file is verified when it is first used."""
        return _OpenSavepoint(self, files.directory)


class _OpenSavepoint(OpenPart):
    def __init__(self, part: SavepointPart, scratch: Path) -> None:
        self._part = part
        self._scratch = scratch
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        """Held by a thread that opens a file or reads a row group."""
        self._opened: dict[str, pq.ParquetFile] = {}
        self._recent: OrderedDict[tuple[str, int], tuple[list[bytes], pa.Table]] = OrderedDict()
        self.registry = {file.state: file.info for file in part.files}

    def entries(self, state: KeyedState, start: bytes, stop: bytes | None) -> Iterator[Entry]:
        file, parquet = self._file(state)
        if parquet is None or file is None:
            return
        rewrite = rewriter(file.info, state.info)
        assert not isinstance(rewrite, Incompatible)
        prefix = table_prefix(state.info.table)
        for group in self._row_groups(parquet, start, stop):
            keys, table = self._row_group(file, parquet, group)
            low = bisect_left(keys, start)
            high = len(keys) if stop is None else bisect_left(keys, stop)
            if low < high:
                values = stored_values(file, table.slice(low, high - low))
                for key, value in zip(keys[low:high], values, strict=True):
                    yield prefix + key, value if rewrite is None else rewrite(value)

    def tables(self, state: KeyedState, start: bytes, stop: bytes | None) -> Iterator[pa.Table]:
        file, parquet = self._file(state)
        if parquet is None or file is None:
            return
        whole = self._is_whole(start, stop)
        if (
            not whole
            or file.type != state.info.type
            or (file.ttl is None) != (state.info.ttl is None)
        ):
            yield from super().tables(state, start, stop)
            return
        names = state.schema.names
        for group in range(parquet.metadata.num_row_groups):
            yield parquet.read_row_group(group, columns=names).select(names).cast(state.schema)

    def close(self) -> None:
        self._recent.clear()
        self._opened.clear()
        self._stack.close()

    def _is_whole(self, start: bytes, stop: bytes | None) -> bool:
        groups = self._part.key_groups
        return start <= _group(groups.start) and (stop is None or _group(groups.stop) <= stop)

    def _file(self, state: KeyedState) -> tuple[SavepointFile | None, pq.ParquetFile | None]:
        file = next((file for file in self._part.files if file.state == state.name), None)
        if file is None or not file.rows:
            return file, None
        with self._lock:
            if file.path not in self._opened:
                copy = verified_copy(self._part.savepoint, file, self._scratch)
                path = self._stack.enter_context(copy)
                self._opened[file.path] = self._stack.enter_context(
                    pq.ParquetFile(path, memory_map=True)
                )
            return file, self._opened[file.path]

    def _row_groups(
        self, parquet: pq.ParquetFile, start: bytes, stop: bytes | None
    ) -> Iterator[int]:
        column = parquet.schema_arrow.get_field_index("key_group")
        first = int.from_bytes(start[:2].ljust(2, b"\0"), "big")
        last = 1 << 16 if stop is None else int.from_bytes(stop[:2].ljust(2, b"\0"), "big")
        for group in range(parquet.metadata.num_row_groups):
            known = parquet.metadata.row_group(group).column(column).statistics
            if first <= known.max and known.min <= last:
                yield group

    def _row_group(
        self, file: SavepointFile, parquet: pq.ParquetFile, group: int
    ) -> tuple[list[bytes], pa.Table]:
        """Return the stored keys of a row group, and its rows."""
        with self._lock:
            found = self._recent.get((file.path, group))
            if found is None:
                table = parquet.read_row_group(group)
                found = stored_keys(file, table), table
                self._recent[file.path, group] = found
                if len(self._recent) > _ROW_GROUPS_KEPT:
                    self._recent.popitem(last=False)
            return found


def _group(number: int) -> bytes:
    return number.to_bytes(2, "big")
