"""Snapshots of one operator that are made of entries, for every backend, and of savepoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from penstock.common import TypeInformation
from penstock.ids import OperatorUid
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.state.backends.refs import StagedName
from penstock.state.backends.registry import create_state_backend
from penstock.state.key_groups import key_group_range
from penstock.state.registry.meta_info import StateMetaInfo
from penstock.task.layout import state_location
from penstock.types.signature import type_signature
from tests.unit.savepoint.saved_states import (
    MAX_PARALLELISM,
    Entry,
    registered,
    save,
    state_entries,
    within,
)

UID = "count"
FORMATS = ("hashmap", "rocksdb", "memory", "savepoint")


class Made(NamedTuple):
    """One state: what it is, and its value for each key."""

    kind: str
    type_info: TypeInformation
    values: Mapping[Any, Any]
    generation: int = 0


def entries_of(states: Mapping[str, Made], key_type: TypeInformation | None) -> list[Entry]:
    """Return the sorted entries of states, with their registry."""
    found: list[Entry] = []
    for table, (name, made) in enumerate(states.items(), 1):
        info = StateMetaInfo(table, made.kind, type_signature(made.type_info), made.generation)
        found.append(registered(name, info))
        found += state_entries(table, made.kind, made.type_info, key_type, made.values.items())
    return sorted(found)


def snapshot_of(
    entries: list[Entry],
    directory: Path,
    kind: str,
    key_type: TypeInformation | None,
    parallelism: int = 1,
    uid: str = UID,
) -> StoredSnapshot:
    """Write a snapshot of these entries; `directory` is that of the checkpoint or savepoint."""
    common = {
        "uid": uid,
        "name": "Count",
        "kind": "process",
        "parallelism": parallelism,
        "max_parallelism": MAX_PARALLELISM,
        "version": 1,
        "key_type": type_signature(key_type) if key_type else "",
    }
    if kind == "savepoint":
        files = save(directory, entries, key_type, parallelism, uid)
        operator = OperatorSnapshot(**common, savepoint=files)  # type: ignore[arg-type]
        return stored([operator], directory, "savepoint")
    backend, refs = create_state_backend(kind), []
    for subtask in range(parallelism):
        mine = within(entries, key_group_range(MAX_PARALLELISM, parallelism, subtask))
        place = state_location(directory.parent / "shared", OperatorUid(uid), subtask)
        place.shared_dir.mkdir(parents=True, exist_ok=True)
        name = StagedName(directory.name, 1, 1, subtask, 0)
        refs.append(backend.load(iter(mine), place, name))
    operator = OperatorSnapshot(**common, backend=kind, keyed=refs)  # type: ignore[arg-type]
    return stored([operator], directory)


def stored(
    operators: Iterable[OperatorSnapshot], directory: Path, kind: str = "checkpoint"
) -> StoredSnapshot:
    metadata = CheckpointMetadata("job", "Job", "a1", 1, kind, 1.0, 2.0, "0.1", list(operators))
    return StoredSnapshot(metadata, directory)
