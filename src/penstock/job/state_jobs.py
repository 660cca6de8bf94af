"""What tasks do with state between micro-batches: fold it, load it, restore it, export it.

Each function runs in a task, once per subtask, with what the driver made up for that subtask and
the task attempt's id; a retried task runs it again and names its files anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.read import entries_of
from penstock.savepoint.write import write_subtask
from penstock.state.backends.base import LocalSnapshot, RemotePlace, StagedName, StateRef
from penstock.state.backends.registry import backend_named
from penstock.state.key_groups import KeyGroupRange
from penstock.state.local_dir import AttemptDir
from penstock.state.savepoint_file import SavepointFile


@dataclass(frozen=True, slots=True)
class FoldWork:
    """One subtask's deltas, to become a base."""

    backend: str
    incremental: bool
    place: RemotePlace
    ref: StateRef
    name: StagedName
    snapshot: LocalSnapshot | None = None


def fold(work: FoldWork, task_attempt: int) -> StateRef | None:
    """Fold deltas into a new base, or bring a local snapshot into the shared directory."""
    backend = backend_named(work.backend, incremental=work.incremental)
    name = replace(work.name, task_attempt=task_attempt)
    place = work.place.here()
    folded = backend.fold(place, work.ref, name, work.snapshot)
    if work.snapshot is not None:
        backend.local_garbage(place, work.snapshot.version)
    return folded


@dataclass(frozen=True, slots=True)
class LoadWork:
    """One subtask's state, to be brought to its host."""

    on_hosts: AttemptDir
    backend: str
    place: RemotePlace
    ref: StateRef


def load(work: LoadWork, task_attempt: int) -> None:
    """Build the host's copy of a restored state, proving every file of it on the way."""
    work.on_hosts.make_way()
    backend_named(work.backend).open(work.place.here(), work.ref).close()


@dataclass(frozen=True, slots=True)
class OldState:
    """The state of one subtask in the checkpoint that is restored."""

    backend: str
    place: RemotePlace
    ref: StateRef


@dataclass(frozen=True, slots=True)
class RestoreWork:
    """One subtask's share of an older state: of several subtasks, or of a savepoint."""

    on_hosts: AttemptDir
    backend: str
    place: RemotePlace
    name: StagedName
    key_groups: KeyGroupRange
    old: Sequence[OldState] = ()
    savepoint: Path | None = None
    files: Sequence[SavepointFile] = ()
    step: str = ""


def restore(work: RestoreWork, task_attempt: int) -> StateRef:
    """Make a new state at version 0 out of the key groups that belong to a subtask now."""
    work.on_hosts.make_way()
    backend = backend_named(work.backend)
    name = replace(work.name, task_attempt=task_attempt)
    if work.savepoint is not None:
        entries = entries_of(work.savepoint, work.files, work.key_groups, work.step)
        return backend.load(entries, work.place.here(), name)
    sources = [(backend_named(old.backend), old.place.here(), old.ref) for old in work.old]
    return backend.restore(sources, work.key_groups, work.place.here(), name)


@dataclass(frozen=True, slots=True)
class ExportWork:
    """One subtask's state, to be written into a savepoint."""

    backend: str
    place: RemotePlace
    ref: StateRef
    operator: SavedOperator
    target: Path
    subtask: int
    name: StagedName
    now: int
    """Processing time in milliseconds."""


def export(work: ExportWork, task_attempt: int) -> list[SavepointFile]:
    """Write a subtask's state in the canonical format."""
    backend = backend_named(work.backend)
    name = str(replace(work.name, task_attempt=task_attempt))
    entries = backend.entries(work.place.here(), work.ref)
    return write_subtask(entries, work.operator, work.target, work.subtask, name, work.now)


def leave(work: AttemptDir, task_attempt: int) -> None:
    """Remove an attempt that has ended from the host of this task."""
    work.leave()
