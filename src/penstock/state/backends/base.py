"""The contract between a job and the place its keyed state lies in.

A subtask's state is a chain of versions. Version b is what micro-batch b left behind: version b-1
plus one delta. Tasks *open* version b-1 and *stage* the delta of b; the driver *publishes* it by
writing down the ``StateRef`` of b. Only published deltas ever reach a store, so a lost try, a
retried task or a zombie can leave files behind but never a wrong value.

Deltas are *folded* into a new base now and then, and for every checkpoint by a backend that wants
snapshots: the task that has the version open takes one, a background task folds it. No method
deletes a shared file: which are still held is the driver's to know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from penstock.state.backends.local_stores import remove_leftovers
from penstock.state.backends.refs import (
    FileRef,
    LocalSnapshot,
    RemotePlace,
    StagedName,
    StatePlace,
    StateRef,
    TableFiles,
)
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.files import sync_files, verify_file
from penstock.state.key_groups import KeyGroupRange
from penstock.state.merge import gathered

__all__ = [
    "FileRef",
    "LocalSnapshot",
    "RemotePlace",
    "StagedName",
    "StateBackend",
    "StatePlace",
    "StateRef",
    "StateStore",
    "TableFiles",
]


class StateBackend(ABC):
    """A way to keep state.

    Tasks call ``open`` and ``stage``, once each per micro-batch, in whatever process and on
    whatever host they land; background tasks call ``fold``, ``verify``, ``sync``, ``restore``,
    ``entries`` and ``load``. The driver calls the pure ones (``publish``, ``rebase``,
    ``freeze``). Any call may be cut off by ``kill -9`` and made again, or be made by two
    processes at once because one of them is a zombie; none of that may change what a version
    holds.
    """

    wants_snapshots: ClassVar[bool] = False
    """Whether tasks should take a snapshot at each checkpoint and hand it to ``fold``."""

    @abstractmethod
    def open(self, place: StatePlace, ref: StateRef) -> StateStore:
        """Open the state at exactly ``ref.version``.

        What the host still holds of this place is brought up by the deltas it lacks, else all is
        rebuilt from base and deltas. A version that cannot be reached so is never guessed.

        Raises:
            CorruptStateError: if a file it needs is missing, damaged or another one.
        """

    @abstractmethod
    def stage(
        self, place: StatePlace, delta: Delta, name: StagedName, version: int
    ) -> FileRef | bytes | None:
        """Write the delta that leads to ``version``, visible to nobody until it is published.

        The name is the task attempt's own, so nothing is ever overwritten; a delta that is never
        published is garbage. Returns what ``publish`` needs; None if nothing changed. Durable
        only after ``sync``, unless the backend was told to sync every file.
        """

    @abstractmethod
    def publish(self, ref: StateRef, version: int, staged: FileRef | bytes | None) -> StateRef:
        """Return the ref of ``version``: this one plus a staged delta. Pure.

        Writing the result down is what publishes; calling this any number of times does not.
        """

    @abstractmethod
    def fold(
        self,
        place: StatePlace,
        ref: StateRef,
        name: StagedName,
        snapshot: LocalSnapshot | None = None,
    ) -> StateRef | None:
        """Write a new base at ``ref.version``; None if there is nothing to fold.

        Returns a ref of that version without deltas. Runs in the background while later versions
        are staged and published; ``rebase`` applies the result to whatever ref is current by
        then. A snapshot of ``ref.version`` saves work if it is on this host, and is used up; it
        may also be lost.

        Raises:
            CorruptStateError: if a file it needs is missing, damaged or another one.
        """

    def rebase(self, ref: StateRef, folded: StateRef | None) -> StateRef:
        """Return ``ref`` on a newer base, without the deltas that are in it. Pure.

        A base that is older than the present one, or newer than ``ref``, changes nothing.
        """
        if folded is None or folded.version > ref.version:
            return ref
        if ref.base_version is not None and folded.version < ref.base_version:
            return ref
        deltas = tuple(delta for delta in ref.deltas if delta.version > folded.version)
        return msgspec.structs.replace(ref, base=folded.base, tables=folded.tables, deltas=deltas)

    @abstractmethod
    def freeze(self, ref: StateRef) -> StateRef:
        """Return the ref a checkpoint may keep: nothing it names will ever change. Pure."""

    def files(self, place: StatePlace, ref: StateRef) -> list[Path]:
        """Return the files a ref needs, base first."""
        return [place.shared_dir / file.name for file in ref.files]

    def sync(self, place: StatePlace, ref: StateRef, known: Collection[str] = ()) -> None:
        """Make the files of a ref durable: they survive the loss of power after this.

        ``known`` are names of files that are durable already.
        """
        sync_files(place.shared_dir / file.name for file in ref.files if file.name not in known)

    def verify(self, place: StatePlace, ref: StateRef, known: Collection[str] = ()) -> None:
        """Read the files of a ref and prove each by size and checksum.

        ``known`` are names of files that were proven already.

        Raises:
            CorruptStateError: naming the first file that is missing, damaged or another one.
        """
        for file in ref.files:
            if file.name not in known:
                verify_file(place, file)

    @abstractmethod
    def entries(self, place: StatePlace, ref: StateRef) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over all entries of a version, ordered by key; nothing of it is changed.

        They are proven once the iterator has ended: until then take nothing as given.

        Raises:
            CorruptStateError: if a file it needs is missing, damaged or another one.
        """

    @abstractmethod
    def load(
        self, entries: Iterator[tuple[bytes, bytes]], place: StatePlace, name: StagedName
    ) -> StateRef:
        """Make a new state, at version 0, of entries ordered by key."""

    def restore(
        self,
        sources: Sequence[tuple[StateBackend, StatePlace, StateRef]],
        key_groups: KeyGroupRange,
        place: StatePlace,
        name: StagedName,
    ) -> StateRef:
        """Gather a range of key groups out of older states into a new one at version 0.

        The sources are only read, each by the backend that wrote it. They are states of one
        operator with disjoint key groups, as its subtasks left them; a state name keeps its
        meaning across them.

        Raises:
            CorruptStateError: if a source is missing, damaged or another file.
        """
        streams = [backend.entries(source, ref) for backend, source, ref in sources]
        return self.load(gathered(streams, key_groups, str(place.shared_dir)), place, name)

    def local_garbage(self, place: StatePlace, newest_version: int) -> None:
        """Remove, as far as it goes, what dead tasks left in this host's local directory.

        Snapshots of versions below ``newest_version`` are not waited for any more.
        """
        remove_leftovers(place.local_dir, newest_version)
