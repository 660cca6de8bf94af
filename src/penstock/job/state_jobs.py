"""State operations that run in tasks: compaction, loading, restoring, export, cleanup.

Each function runs once per subtask, with that subtask's work and the task attempt's id; a retried
task runs it again and gives its files new names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.common.storage_url import Location
from penstock.errors import CorruptStateError
from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.read import entries_of
from penstock.savepoint.write import write_subtask
from penstock.state.backends import refs
from penstock.state.backends.base import StateBackend
from penstock.state.backends.registry import create_state_backend
from penstock.state.delta import Entry
from penstock.state.key_groups import KeyGroupRange
from penstock.state.local_dir import AttemptDir, remove_older_attempts, writing_to
from penstock.state.merge import reject_pickled
from penstock.state.savepoint_file import SavepointFile
from penstock.state.stored_files import store_files


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """The deltas of one subtask, to be compacted into a base."""

    backend: str
    incremental: bool
    place: refs.UnresolvedStateLocation
    ref: refs.StateRef
    name: refs.StagedName
    snapshot: refs.LocalSnapshot | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """The new base of one subtask."""

    ref: refs.StateRef | None
    """None if the state did not change."""
    damage: str = ""
    """What was wrong with the files that were written first."""


def compact(work: CompactionWork, task_attempt: int) -> Compacted:
    """Compact deltas into a new base, or upload a local snapshot.

    The new files are synced and read back: a damaged one is never used, but written again.
    """
    backend = create_state_backend(work.backend, incremental=work.incremental)
    name = replace(work.name, task_attempt=task_attempt)

    def write(snapshot: refs.LocalSnapshot | None) -> refs.StateRef | None:
        base = backend.on_host(
            work.place, lambda place: backend.compact(place, work.ref, name, snapshot)
        )
        if base is not None:
            _make_durable(backend, work.place.shared, base, work.ref)
        return base

    try:
        compacted = Compacted(write(work.snapshot))
    except CorruptStateError as error:
        # The local snapshot is used up: the state is rebuilt from its last base and deltas.
        compacted = Compacted(write(None), str(error))
    if work.snapshot is not None:
        backend.clean_up_local(work.place.resolve(), work.snapshot.version)
    return compacted


def _make_durable(
    backend: StateBackend, place: refs.StateLocation, base: refs.StateRef, old: refs.StateRef
) -> None:
    """Sync and read back the files of a base that the state did not have before.

    Raises:
        CorruptStateError: one of them is damaged; all of them are deleted.
    """
    # A store has verified what it received.
    known = {file.name for file in old.files}
    known |= {file.name for file in base.files if file.stored is not None}
    try:
        backend.sync(place, base, known)
        backend.verify(place, base, known)
    except CorruptStateError:
        for file in (file for file in base.files if file.name not in known):
            (place.shared_dir / file.name).unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class VerifyWork:
    """The state of one subtask, of which some files were not verified before."""

    backend: str
    place: refs.StateLocation
    ref: refs.StateRef
    known: frozenset[str]
    """The names of the others."""

    @property
    def new_bytes(self) -> int:
        """How many bytes there are to verify."""
        return sum(file.size for file in self.ref.files if file.name not in self.known)


def verify(work: VerifyWork, task_attempt: int) -> None:
    """Sync and read back the new files of a state.

    Raises:
        CorruptStateError: one of them is missing, damaged or another one.
    """
    backend = create_state_backend(work.backend)
    backend.sync(work.place, work.ref, work.known)
    backend.verify(work.place, work.ref, work.known)


@dataclass(frozen=True, slots=True)
class StoreWork:
    """Files of one subtask's state, to be put into the store."""

    place: refs.UnresolvedStateLocation
    files: tuple[refs.FileRef, ...]
    version: int
    name: refs.StagedName


def store(work: StoreWork, task_attempt: int) -> list[refs.FileRef]:
    """Put files into the store; return refs that say where they are."""
    name = replace(work.name, task_attempt=task_attempt)
    return store_files(work.place.shared, work.files, work.version, name)


@dataclass(frozen=True, slots=True)
class LoadWork:
    """The state of one subtask, to be loaded on its host."""

    attempt_dirs: Sequence[AttemptDir]
    backend: str
    place: refs.UnresolvedStateLocation
    ref: refs.StateRef


def load(work: LoadWork, task_attempt: int) -> None:
    """Build the local copy of a restored state, verifying every file on the way."""
    remove_older_attempts(work.attempt_dirs)
    backend = create_state_backend(work.backend)
    backend.on_host(work.place, lambda place: backend.open(place, work.ref)).close()


@dataclass(frozen=True, slots=True)
class PreviousState:
    """The state of one subtask in the restored checkpoint."""

    backend: str
    place: refs.UnresolvedStateLocation
    ref: refs.StateRef


@dataclass(frozen=True, slots=True)
class RestoreWork:
    """The key groups of one subtask, to be read from several old subtasks or a savepoint."""

    attempt_dirs: Sequence[AttemptDir]
    backend: str
    place: refs.UnresolvedStateLocation
    name: refs.StagedName
    key_groups: KeyGroupRange
    old: Sequence[PreviousState] = ()
    savepoint: Location | None = None
    files: Sequence[SavepointFile] = ()
    step: str = ""
    untrusted: str = ""
    """The path of a snapshot whose pickled values must not be loaded."""


def restore(work: RestoreWork, task_attempt: int) -> refs.StateRef:
    """Build a new state at version 0 from the key groups that the subtask owns now."""
    remove_older_attempts(work.attempt_dirs)
    backend = create_state_backend(work.backend)
    name = replace(work.name, task_attempt=task_attempt)

    def check(entries: Iterator[Entry]) -> Iterator[Entry]:
        return reject_pickled(entries, work.untrusted, work.step) if work.untrusted else entries

    def restore_at(place: refs.StateLocation) -> refs.StateRef:
        if work.savepoint is not None:
            entries = entries_of(
                work.savepoint, work.files, work.key_groups, work.step, place.local_dir.parent
            )
            return backend.load(check(entries), place, name)
        sources = [
            (create_state_backend(old.backend), old.place.resolve(), old.ref) for old in work.old
        ]
        return backend.restore(sources, work.key_groups, place, name, check)

    # The backend that reads the old state may need a local store, too.
    return work.place.use(restore_at)


@dataclass(frozen=True, slots=True)
class ExportWork:
    """The state of one subtask, to be written into a savepoint."""

    backend: str
    place: refs.UnresolvedStateLocation
    ref: refs.StateRef
    operator: SavedOperator
    target: Location
    subtask: int
    name: refs.StagedName
    now: int
    """Processing time in milliseconds."""


def export(work: ExportWork, task_attempt: int) -> list[SavepointFile]:
    """Write a subtask's state in the canonical savepoint format."""
    backend = create_state_backend(work.backend)
    name = str(replace(work.name, task_attempt=task_attempt))

    def export_at(place: refs.StateLocation, scratch: Path | None = None) -> list[SavepointFile]:
        entries = backend.entries(place, work.ref)
        return write_subtask(
            entries, work.operator, work.target, work.subtask, name, work.now, scratch
        )

    if isinstance(work.target, Path):
        return backend.on_host(work.place, export_at)

    def export_through_host(place: refs.StateLocation) -> list[SavepointFile]:
        # A file is on this host until it is uploaded.
        with writing_to(place.local_dir):
            return export_at(place, place.local_dir.parent)

    return work.place.use(export_through_host)


def remove_local_state(work: Sequence[AttemptDir], task_attempt: int) -> None:
    """Remove the directories of a finished attempt from the host of this task."""
    for directory in work:
        directory.leave()
