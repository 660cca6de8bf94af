"""The contract between a job and the place its keyed state lies in.

A subtask's state is a chain of versions. Version b is what micro-batch b left behind: version b-1
plus one delta. Tasks *open* version b-1 and *stage* the delta of b; the driver *publishes* it by
writing down the ``StateRef`` of b. Only published deltas ever reach a store, so a lost try, a
retried task or a zombie can leave files behind but never a wrong value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from penstock.state.delta import Delta
from penstock.state.key_groups import KeyGroupRange

__all__ = [
    "FileRef",
    "StagedName",
    "StateBackend",
    "StatePlace",
    "StateRef",
    "StateStore",
]


class FileRef(msgspec.Struct, frozen=True):
    """A state file: its name in the shared directory, the version it leads to, its checksum.

    ``crc`` is the CRC-32 of the file's bytes as they lie there.
    """

    name: str
    version: int
    size: int
    crc: int


class StateRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a subtask's state; travels in instructions, manifests and checkpoints.

    The version is the base plus the deltas in their order, or all of it ``inline``.
    ``StateRef(0)`` is the empty state a job begins with.
    """

    version: int
    base: FileRef | None = None
    deltas: tuple[FileRef, ...] = ()
    inline: bytes | None = None


@dataclass(frozen=True, slots=True)
class StatePlace:
    """The directories of one subtask of one operator in one attempt.

    ``shared_dir`` is the same for all hosts, ``local_dir`` belongs to a host. Neither is shared
    with another attempt: within a place a version number means one state only.
    """

    shared_dir: Path
    local_dir: Path


@dataclass(frozen=True, slots=True)
class StagedName:
    """Who staged a file; no two task attempts of a job's life have the same."""

    attempt: str
    batch: int
    try_: int
    subtask: int
    task_attempt: int

    def __str__(self) -> str:
        return f"{self.attempt}-b{self.batch}-t{self.try_}-s{self.subtask}-a{self.task_attempt}"


class StateStore(ABC):
    """One version of a subtask's state, open for reading by one task.

    It shows exactly ``version`` until it is closed, whatever other processes do meanwhile. Keys
    are never empty; a value may be.
    """

    version: int

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return one value, or None, for each key; fastest if the keys are sorted."""
        return list(map(self.get, keys))

    @abstractmethod
    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate, ordered by key, from ``start`` up to, not including, ``stop``."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries whose keys begin with ``prefix``, ordered by key."""
        return self.scan_between(prefix, _behind(prefix))

    def scan_key_groups(
        self, table: int, key_groups: KeyGroupRange
    ) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over a table's entries in a range of key groups, ordered by key."""
        prefix = table.to_bytes(2, "big")
        start = prefix + key_groups.start.to_bytes(2, "big")
        stop = prefix + key_groups.stop.to_bytes(2, "big")
        return self.scan_between(start, stop)

    @abstractmethod
    def close(self) -> None:
        """Let go of every file and lock; closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class StateBackend(ABC):
    """A way to keep state.

    Tasks call ``open`` and ``stage``, once each per micro-batch, in whatever process and on
    whatever host they land; background tasks call ``fold``, ``restore`` and ``sync``. The driver
    calls the pure ones (``publish``, ``rebase``, ``freeze``) and ``drop``. Any call may be cut off
    by ``kill -9`` and made again, or be made by two processes at once because one of them is a
    zombie; none of that may change what a version holds.
    """

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
        published is garbage for ``drop``. Returns what ``publish`` needs; None if nothing changed.
        Durable only after ``sync``, unless the backend was told to sync every file.
        """

    @abstractmethod
    def publish(self, ref: StateRef, version: int, staged: FileRef | bytes | None) -> StateRef:
        """Return the ref of ``version``: this one plus a staged delta. Pure.

        Writing the result down is what publishes; calling this any number of times does not.
        """

    @abstractmethod
    def fold(self, place: StatePlace, ref: StateRef, name: StagedName) -> FileRef | None:
        """Write a new base at ``ref.version``; None if there is nothing to fold.

        Runs in the background while later versions are staged and published. ``rebase`` applies
        the result to whatever ref is current by then.
        """

    @abstractmethod
    def rebase(self, ref: StateRef, base: FileRef | None) -> StateRef:
        """Return ``ref`` on a newer base, without the deltas that are in it. Pure.

        A base that is not newer than the present one changes nothing.
        """

    @abstractmethod
    def freeze(self, ref: StateRef) -> StateRef:
        """Return the ref a checkpoint may keep: nothing it names will ever change. Pure."""

    @abstractmethod
    def files(self, place: StatePlace, ref: StateRef) -> list[Path]:
        """Return the files a ref needs, base first."""

    @abstractmethod
    def sync(self, place: StatePlace, ref: StateRef) -> None:
        """Make the files of a ref durable: they survive the loss of power after this."""

    @abstractmethod
    def restore(
        self,
        sources: Sequence[tuple[StatePlace, StateRef]],
        key_groups: KeyGroupRange,
        place: StatePlace,
        name: StagedName,
    ) -> StateRef:
        """Gather a range of key groups out of older states into a new one at version 0.

        The sources are only read. They are states of one operator with disjoint key groups, as
        its subtasks left them; a state name keeps its meaning across them.

        Raises:
            CorruptStateError: if a source is missing, damaged or another file.
        """

    @abstractmethod
    def drop(self, place: StatePlace, *keep: StateRef) -> list[Path]:
        """Delete the place's files that none of ``keep`` needs; return what was deleted.

        ``keep`` are the newest ref and all those that checkpoints still hold. What a running task
        stages or a running fold writes is left alone.
        """


def _behind(prefix: bytes) -> bytes | None:
    """Return the least key above all keys with this prefix."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
