"""The memory backend: state inside the job's own metadata, for small states and tests."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import io
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from typing import ClassVar

from penstock.errors import StateTooLargeError
from penstock.state.backends.base import StateBackend, check_next
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.refs import FileRef, LocalSnapshot, StagedName, StateLocation, StateRef
from penstock.state.backends.store import StateStore
from penstock.state.delta import (
    Block,
    Delta,
    blocks_of_entries,
    encode_delta,
    read_blocks,
    write_blocks,
)
from penstock.state.merge import compacted, entries_of, overlay_of
from penstock.state.registry.meta_info import REGISTRY, decode_info, registry_name, table_prefix

LARGEST_STATE = 5 * 1024 * 1024


class MemoryStore(StateStore):
    """A state held in a dict."""

    def __init__(self, version: int, entries: dict[bytes, bytes]) -> None:
        self.version = version
        self._entries = entries
        self._sorted: list[bytes] | None = None

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        first = bisect_left(self._sorted, start)
        last = len(self._sorted) if stop is None else bisect_left(self._sorted, stop)
        return ((key, self._entries[key]) for key in self._sorted[first:last])

    def close(self) -> None:
        pass


class MemoryBackend(StateBackend):
    """Keeps each subtask's whole state in its ``StateRef``; ``step`` is for error messages."""

    has_local_stores: ClassVar[bool] = False

    def __init__(self, step: str = "", largest_state: int = LARGEST_STATE) -> None:
        self._step = step
        self._largest_state = largest_state

    def open(self, location: StateLocation, ref: StateRef) -> MemoryStore:
        return MemoryStore(ref.version, dict(entries_of(_blocks(ref.inline))))

    def stage(
        self, location: StateLocation, delta: Delta, name: StagedName, version: int
    ) -> FileRef | bytes | None:
        return encode_delta(delta, version) if len(delta) else None

    def publish(self, ref: StateRef, version: int, staged: FileRef | bytes | None) -> StateRef:
        check_next(ref, version)
        if staged is None:
            return StateRef(version, inline=ref.inline)
        if not isinstance(staged, bytes):
            message = f"the memory backend stages bytes; got {staged!r}"
            raise TypeError(message)
        overlay = overlay_of([_blocks(staged, version)])
        return self._inline(version, compacted(_blocks(ref.inline), overlay))

    def compact(
        self,
        location: StateLocation,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None = None,
    ) -> StateRef | None:
        return None

    def rebase(self, ref: StateRef, compacted: StateRef | None) -> StateRef:
        return ref

    def verify(self, location: StateLocation, ref: StateRef, known: Collection[str] = ()) -> None:
        for _ in _blocks(ref.inline):
            pass

    def entries(
        self, location: StateLocation, ref: StateRef, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        return entries_of(_blocks(ref.inline), start, stop)

    def open_files(self, location: StateLocation, ref: StateRef, files: HostFiles) -> MemoryStore:
        return self.open(location, ref)

    def load(
        self, entries: Iterator[tuple[bytes, bytes]], location: StateLocation, name: StagedName
    ) -> StateRef:
        return self._inline(0, blocks_of_entries(entries))

    def _inline(self, version: int, blocks: Iterator[Block]) -> StateRef:
        buffer = io.BytesIO()
        write_blocks(buffer, version, blocks)
        inline = buffer.getvalue()
        self._check_size(inline)
        return StateRef(version, inline=inline)

    def _check_size(self, inline: bytes) -> None:
        if len(inline) <= self._largest_state:
            return
        sizes: Counter[bytes] = Counter()
        names = {}
        for key, value in entries_of(_blocks(inline)):
            table = key[:2]
            sizes[table] += len(key) + len(value)
            if table == table_prefix(REGISTRY):
                names[table_prefix(decode_info(value).table)] = registry_name(key)
        table, size = sizes.most_common(1)[0]
        if size > self._largest_state:
            state = names.get(table, table.hex())
            raise StateTooLargeError(self._step, state, size, self._largest_state)


def _blocks(inline: bytes | None, version: int | None = None) -> Iterator[Block]:
    if inline is None:
        return iter(())
    return read_blocks(io.BytesIO(inline), "(inline)", version)
