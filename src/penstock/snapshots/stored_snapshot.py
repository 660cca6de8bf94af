"""A checkpoint or savepoint that is read as data, from its files alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from penstock.checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common.storage_url import Location
from penstock.errors import (
    NotASnapshotError,
    UnknownOperatorError,
    UnknownStateError,
)
from penstock.ids import OperatorUid
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import CheckpointPart, OpenPart, SavepointPart, StatePart
from penstock.state.backends.host_files import HostFiles
from penstock.state.key_groups import key_group_range
from penstock.state.registry.meta_info import StateMetaInfo
from penstock.state.registry.migration import merged_registry
from penstock.storage.storages import storage_at
from penstock.task.layout import state_location

METADATA = "_metadata"


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot whose metadata was read; its state files are read when they are asked for."""

    metadata: CheckpointMetadata
    directory: Location

    @property
    def is_savepoint(self) -> bool:
        """Whether it is a savepoint, which its user owns."""
        return self.metadata.kind == "savepoint"

    @property
    def keyed_operators(self) -> list[OperatorSnapshot]:
        """The operators with keyed state."""
        return [o for o in self.metadata.operators if o.keyed or o.savepoint]

    def operator(self, name: str) -> OperatorSnapshot:
        """Return the operator with a uid, or the only one with a name.

        Raises:
            UnknownOperatorError: there is none, or several have the name.
        """
        operators = self.metadata.operators
        found = [o for o in operators if o.uid == name] or [o for o in operators if o.name == name]
        if len(found) != 1:
            known = tuple(f"{o.uid} ({o.name})" for o in operators)
            raise UnknownOperatorError(str(self.directory), name, known)
        return found[0]

    def parts(self, operator: OperatorSnapshot) -> list[StatePart]:
        """Return the keyed state of an operator by subtask, in the order of their key groups."""
        groups = [
            key_group_range(operator.max_parallelism, operator.parallelism, subtask)
            for subtask in range(operator.parallelism)
        ]
        if operator.savepoint:
            return [
                SavepointPart(
                    subtask,
                    groups[subtask],
                    self.directory,
                    tuple(file for file in operator.savepoint if file.subtask == subtask),
                )
                for subtask in range(operator.parallelism)
            ]
        shared = self.directory.parent / "shared"
        return [
            CheckpointPart(
                subtask,
                groups[subtask],
                operator.backend or "",
                state_location(shared, OperatorUid(operator.uid), subtask),
                ref,
            )
            for subtask, ref in enumerate(operator.keyed)
        ]

    def keyed_states(
        self, operator: OperatorSnapshot, opened: Sequence[OpenPart] | None = None
    ) -> list[KeyedState]:
        """Return the keyed states of an operator, by name; timers are among them.

        The names are in the state itself, so every part is opened, unless that was done before.

        Raises:
            CorruptStateError: a file is missing, damaged or another one.
        """
        if opened is not None:
            registries = [part.registry for part in opened]
        else:
            registries = []
            for part in self.parts(operator):
                with opened_part(part) as one:
                    registries.append(one.registry)
        about = operator.uid, operator.name, operator.key_type, operator.max_parallelism
        return states_in(registries, *about)

    @cached_property
    def _states(self) -> dict[str, list[KeyedState]]:
        return {}

    def keyed_state(self, operator: OperatorSnapshot, name: str) -> KeyedState:
        """Return one keyed state of an operator.

        Raises:
            UnknownStateError: the operator has no state with this name.
            CorruptStateError: a file is missing, damaged or another one.
        """
        if operator.uid not in self._states:
            self._states[operator.uid] = self.keyed_states(operator)
        return state_named(self._states[operator.uid], operator, name)


def states_in(
    registries: Sequence[Mapping[str, StateMetaInfo]],
    uid: str,
    name: str,
    key_type: str,
    max_parallelism: int,
) -> list[KeyedState]:
    """Return the states of an operator by name, from the registries of its subtasks."""
    merged = merged_registry([dict(registry) for registry in registries], name)
    return [
        KeyedState(uid, name, state, info, key_type, max_parallelism)
        for state, info in sorted(merged.items())
    ]


def state_named(states: Sequence[KeyedState], operator: OperatorSnapshot, name: str) -> KeyedState:
    """Return the state with a name.

    Raises:
        UnknownStateError: there is none.
    """
    for state in states:
        if state.name == name:
            return state
    raise UnknownStateError(operator.name, name, tuple(state.name for state in states))


@contextmanager
def opened_part(part: StatePart, directory: Path | None = None) -> Iterator[OpenPart]:
    """Open a part for as long as the context lasts; its files are below a local directory."""
    with tempfile.TemporaryDirectory(prefix="penstock-state-", dir=directory) as scratch:
        files = HostFiles(Path(scratch) / "host")
        try:
            with part.open(files) as opened:
                yield opened
        finally:
            files.close()


def open_snapshot(path: Location) -> StoredSnapshot:
    """Read the metadata of a snapshot; `path` is its directory or the metadata in it.

    Raises:
        NotASnapshotError: there is no metadata.
        CorruptMetadataError: the metadata is damaged.
    """
    directory = path.parent if path.name == METADATA else path
    try:
        data = storage_at(directory).read(METADATA)
    except (FileNotFoundError, NotADirectoryError):
        raise NotASnapshotError(str(path)) from None
    return StoredSnapshot(decode_metadata(data, str(directory / METADATA)), directory)
