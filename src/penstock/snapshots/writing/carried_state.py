"""Keyed state that goes from a snapshot into a savepoint as it is; these functions run in tasks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa

from penstock.common.storage_url import Location
from penstock.savepoint.layout import SavedOperator, operator_dir, state_dir
from penstock.savepoint.part_files import part_files
from penstock.savepoint.read import verified_copy
from penstock.savepoint.write import write_state
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import StatePart
from penstock.snapshots.stored_snapshot import opened_part
from penstock.snapshots.writing.stored_tables import key_of_timer
from penstock.state.key_groups import end_of_key, key_group, key_of
from penstock.state.registry.meta_info import TIMERS
from penstock.state.savepoint_file import SavepointFile

_ENTRIES_PER_BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class CopyWork:
    """A file of a savepoint, for an operator that keeps its uid."""

    source: Location
    file: SavepointFile
    target: Location
    uid: str


def copy_file(work: CopyWork, name: str) -> list[SavepointFile]:
    """Copy and verify a file; return it under its name in the new savepoint."""
    file = work.file
    parts = part_files(work.target, file.subtask, name, None)
    try:
        with verified_copy(work.source, file, None) as path:
            directory = PurePosixPath(operator_dir(work.uid), state_dir(file.state))
            copy = parts.begin(directory)
            with path.open("rb") as original, copy.open("xb") as target:
                shutil.copyfileobj(original, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
        copied = parts.put(file.size, file.crc)
        parts.complete()
    except BaseException:
        parts.abort()
        raise
    fields = {name: getattr(file, name) for name in SavepointFile.__struct_fields__}
    return [SavepointFile(**{**fields, "path": copied})]


@dataclass(frozen=True, slots=True)
class ConvertWork:
    """What a subtask has of some states, to be written as files of a savepoint."""

    part: StatePart
    states: tuple[KeyedState, ...]
    operator: SavedOperator
    target: Location


def convert_part(work: ConvertWork, name: str) -> list[SavepointFile]:
    """Write states of a part; those that it has not declared have no file."""
    with opened_part(work.part) as opened:
        return [
            write_state(
                opened.tables(state, b"", None),
                work.operator,
                state.name,
                state.info,
                work.target,
                work.part.subtask,
                name,
            )
            for state in work.states
            if state.name in opened.registry
        ]


def regrouped(
    part: StatePart, state: KeyedState, max_parallelism: int
) -> Iterator[tuple[list[bytes], list[bytes], list[int]]]:
    """Iterate over the entries of a state with other key groups: stored keys, values, groups."""
    keys: list[bytes] = []
    values: list[bytes] = []
    groups: list[int] = []
    find = key_of_timer if state.info.kind == TIMERS else key_of
    with opened_part(part) as opened:
        if state.name not in opened.registry:
            return
        for entry, value in opened.entries(state, b"", None):
            stored = entry[2:]
            group = key_group(find(stored), max_parallelism)
            keys.append(group.to_bytes(2, "big") + stored[2:])
            values.append(value)
            groups.append(group)
            if len(keys) == _ENTRIES_PER_BATCH:
                yield keys, values, groups
                keys, values, groups = [], [], []
    if keys:
        yield keys, values, groups


def rows_of(part: StatePart, state: KeyedState) -> Iterator[pa.Table]:
    """Iterate over the rows of a state in a part."""
    with opened_part(part) as opened:
        if state.name in opened.registry:
            yield from opened.tables(state, b"", None)


def namespace_of_timer(map_key_bytes: bytes) -> bytes:
    """Return what follows the key of a timer: the bytes of its window."""
    # The key is stored as if after a key group.
    return map_key_bytes[end_of_key(b"\0\0" + map_key_bytes) - 2 :]
