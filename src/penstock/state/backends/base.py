"""The contract of state backends.

A subtask's state is a sequence of versions. Version b is the state after micro-batch b: version b-1
plus one delta. Tasks *open* version b-1 and *stage* the delta of b; the driver *publishes* it by
recording the ``StateRef`` of b. Only published deltas ever reach a local store, so a failed try, a
retried task or a zombie may leave files but never a wrong value.

Deltas are *compacted* into a new base from time to time, and for every checkpoint by a backend that
uses local snapshots: the task that has the version open takes one, a background task uploads it. No
method deletes a shared file: only the driver knows which files are still referenced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import ClassVar, TypeVar

import msgspec

from penstock.common.storage_url import Location
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.local_stores import remove_leftovers
from penstock.state.backends.refs import (
    FileRef,
    LocalSnapshot,
    StagedName,
    StateLocation,
    StateRef,
    UnresolvedStateLocation,
)
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta, Entry
from penstock.state.files import place_of, sync_files, verify
from penstock.state.key_groups import KeyGroupRange
from penstock.state.merge import merge_key_groups

T = TypeVar("T")


class StateBackend(ABC):
    """Stores the keyed state of subtasks.

    Tasks call ``open`` and ``stage``, once each per micro-batch, in any process and on any host;
    background tasks call ``compact``, ``verify``, ``sync``, ``restore``, ``entries`` and ``load``.
    The driver calls the pure methods (``publish``, ``rebase``, ``freeze``). Any call may be
    interrupted by ``kill -9`` and repeated, or be made by two processes at once because one of them
    is a zombie; none of that may change the contents of a version.
    """

    wants_snapshots: ClassVar[bool] = False
    """Whether tasks should take a local snapshot at each checkpoint and pass it to ``compact``."""
    has_local_stores: ClassVar[bool] = True
    """Whether it keeps a copy of the state on each host."""
    exceeds_memory: ClassVar[bool] = False
    """Whether state may be larger than memory: its local stores belong on a disk."""

    @abstractmethod
    def open(self, location: StateLocation, ref: StateRef) -> StateStore:
        """Open the state at exactly ``ref.version``.

        The host's local store is brought up to date by the deltas it lacks, or rebuilt from base
        and deltas. A version that cannot be reached that way is an error.

        Raises:
            CorruptStateError: if a file it needs is missing, damaged or another one.
        """

    @abstractmethod
    def stage(
        self, location: StateLocation, delta: Delta, name: StagedName, version: int
    ) -> FileRef | bytes | None:
        """Write the delta that leads to ``version``, invisible until it is published.

        The name is unique to the task attempt, so nothing is ever overwritten; a delta that is
        never published is garbage. Returns the argument for ``publish``, None if nothing changed.
        Durable only after ``sync``, unless the backend syncs every file.
        """

    @abstractmethod
    def publish(self, ref: StateRef, version: int, staged: FileRef | bytes | None) -> StateRef:
        """Return the ref of ``version``: this one plus a staged delta. Pure.

        Recording the result is what publishes; calling this any number of times does not.
        """

    @abstractmethod
    def compact(
        self,
        location: StateLocation,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None = None,
    ) -> StateRef | None:
        """Write a new base at ``ref.version``; None if there is nothing to compact.

        Returns a ref of that version without deltas. Runs in the background while later versions
        are staged and published; ``rebase`` applies the result to the ref that is current then. A
        local snapshot of ``ref.version`` saves work if it is on this host, and is consumed; it may
        also be lost.

        Raises:
            CorruptStateError: if a file it needs is missing, damaged or another one.
        """

    def rebase(self, ref: StateRef, compacted: StateRef | None) -> StateRef:
        """Return ``ref`` on a newer base, without the deltas that are in it. Pure.

        A base that is older than the present one, or newer than ``ref``, changes nothing.
        """
        if compacted is None or compacted.version > ref.version:
            return ref
        if ref.base_version is not None and compacted.version < ref.base_version:
            return ref
        deltas = tuple(delta for delta in ref.deltas if delta.version > compacted.version)
        base, tables = compacted.base, compacted.tables
        return msgspec.structs.replace(ref, base=base, tables=tables, deltas=deltas)

    def freeze(self, ref: StateRef) -> StateRef:
        """Return the ref that a checkpoint keeps: nothing it names will ever change. Pure."""
        return ref

    def files(self, location: StateLocation, ref: StateRef) -> list[Location]:
        """Return the files of a ref, base first; several may be in one object of a store."""
        return [place_of(location, file) for file in ref.files]

    def sync(self, location: StateLocation, ref: StateRef, known: Collection[str] = ()) -> None:
        """Make the files of a ref durable, except the ``known`` names, which are already."""
        sync_files(
            location.shared_dir / file.name
            for file in ref.files
            if file.stored is None and file.name not in known
        )

    def verify(self, location: StateLocation, ref: StateRef, known: Collection[str] = ()) -> None:
        """Verify size and checksum of the files of a ref, except the ``known`` names.

        Raises:
            CorruptStateError: naming the first file that is missing, damaged or another one.
        """
        for file in ref.files:
            if file.name not in known:
                verify(location, file)

    @abstractmethod
    def entries(
        self, location: StateLocation, ref: StateRef, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over entries of a version, ordered by key, without changing anything.

        They are those from ``start`` up to, not including, ``stop``. That a file is the one the ref
        names is verified only when the iterator has ended: until then they must not be used to
        restore a job.

        Raises:
            CorruptStateError: if a file it needs is missing, damaged or another one.
        """

    @abstractmethod
    def open_files(self, location: StateLocation, ref: StateRef, files: HostFiles) -> StateStore:
        """Open a version from its files alone, for many look-ups.

        Called outside of tasks, by readers that are not part of the job. ``files`` has links or
        copies of files on this host; versions opened one after another share what they have in
        common. Any thread may read the store, also while the next version is opened.

        Raises:
            CorruptStateError: if a file it needs is missing, damaged or another one.
        """

    @abstractmethod
    def load(
        self, entries: Iterator[tuple[bytes, bytes]], location: StateLocation, name: StagedName
    ) -> StateRef:
        """Create a new state, at version 0, from entries ordered by key."""

    def restore(
        self,
        sources: Sequence[tuple[StateBackend, StateLocation, StateRef]],
        key_groups: KeyGroupRange,
        location: StateLocation,
        name: StagedName,
        check: Callable[[Iterator[Entry]], Iterator[Entry]] = iter,
    ) -> StateRef:
        """Create a new state, at version 0, from a range of key groups of older states.

        The sources are only read, each by the backend that wrote it. They are states of one
        operator with disjoint key groups, as its subtasks wrote them; a state name means the same
        in all of them. ``check`` passes the entries on, or raises.

        Raises:
            CorruptStateError: if a source is missing, damaged or another file.
        """
        streams = [backend.entries(source, ref) for backend, source, ref in sources]
        entries = merge_key_groups(streams, key_groups, str(location.shared_dir))
        try:
            return self.load(check(entries), location, name)
        finally:
            # After an error they may still have local stores open.
            for stream in streams:
                if isinstance(stream, Generator):
                    stream.close()

    def on_host(self, place: UnresolvedStateLocation, function: Callable[[StateLocation], T]) -> T:
        """Call a function with a location on this host, again with the next one if that is full.

        The methods above raise `LocalStateDirFullError` before they write any shared file.
        """
        return place.use(function) if self.has_local_stores else function(place.shared)

    def clean_up_local(self, location: StateLocation, newest_version: int) -> None:
        """Remove what dead tasks left in this host's local directory, as far as possible.

        Snapshots of versions below ``newest_version`` are no longer needed.
        """
        remove_leftovers(location.local_dir, newest_version)


def check_next(ref: StateRef, version: int) -> None:
    """Reject a version that is not newer than that of a ref."""
    if version <= ref.version:
        message = f"version {version} does not come after {ref.version}"
        raise ValueError(message)
