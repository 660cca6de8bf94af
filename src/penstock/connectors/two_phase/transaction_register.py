"""Durable register of the transactions that a sink has open in an external system.

A driver that dies leaves open transactions, which can only be ended by name. So each transaction
is registered in a small file of its own before it is opened, and removed when it is committed or
aborted. A new attempt finds here all that its predecessors can have left open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from uuid import uuid4

import msgspec

from penstock.common.storage_url import Location
from penstock.errors import UnsafeNameError
from penstock.ids import is_no_later
from penstock.storage.durable_files import sync_directory
from penstock.storage.storages import storage_at


class TransactionContext(msgspec.Struct, frozen=True, array_like=True):
    """Identifies a transaction: its ``name`` is unique across all runs of all jobs.

    ``step`` is the sink's uid in a form that can name a file. ``checkpoint`` is the one whose
    barrier ended the transaction; a later one holds it if that is aborted. ``token`` is random: a
    second try, and a job of the same name elsewhere, get another one.
    """

    job: str
    step: str
    attempt: str
    checkpoint: int
    subtask: int
    parallelism: int
    token: str = msgspec.field(default_factory=lambda: uuid4().hex[:12])

    @property
    def name(self) -> str:
        """A name of letters, digits, '-', '_' and '.', at most 240 of them."""
        return f"{self.job}-{self.step}-{self._key}"

    @property
    def _key(self) -> str:
        return f"{self.attempt}-{self.checkpoint}-{self.subtask}-{self.token}"


class Phase(Enum):
    """The last phase a transaction is known to have reached; the value is a file name's suffix."""

    OPENED = ".opened"
    PREPARED = ".prepared"
    COMMITTING = ".committing"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that is not known to have ended, and its pickled committable if it has one."""

    context: TransactionContext
    committable: bytes | None = None


_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class TransactionRegister:
    """The transactions of one step, as seen by one attempt.

    Entries are durable when a method returns. A removed entry may reappear after a power loss, so
    ending a transaction twice must be harmless.
    """

    def __init__(self, place: Location, attempt: str) -> None:
        self.place = place
        self._storage = storage_at(place)
        self._attempt = attempt

    def open(self, context: TransactionContext) -> None:
        """Register a transaction before it is opened."""
        self._write(Entry(context), Phase.OPENED)

    def is_open(self, context: TransactionContext) -> bool:
        """Whether a transaction of this attempt that is not prepared is still registered.

        It is not if a later attempt has taken over and aborted it.
        """
        return self._storage.exists(self._name(context, Phase.OPENED))

    def prepare(self, context: TransactionContext, committable: bytes) -> None:
        """Record the committable of a transaction that is prepared."""
        self._write(Entry(context, committable), Phase.PREPARED)
        self._storage.delete(self._name(context, Phase.OPENED))

    def commit(self, entries: Iterable[Entry]) -> None:
        """Record that transactions may be committed from now on, so that none is aborted any more.

        Transactions that are not registered ended before, or belong to another job.
        """
        if isinstance(self.place, Path):
            self._rename(self.place, entries)
            return
        names = set(self._storage.children(""))
        prepared = [one for one in entries if self._name(one.context, Phase.PREPARED) in names]
        for entry in prepared:
            self._write(entry, Phase.COMMITTING)
        self._storage.delete_all(self._name(one.context, Phase.PREPARED) for one in prepared)

    def end(self, contexts: Iterable[TransactionContext]) -> None:
        """Remove transactions that are committed or aborted."""
        self._storage.delete_all(self._name(one, phase) for one in contexts for phase in Phase)

    def entries(self) -> list[tuple[Phase, Entry]]:
        """Return the open transactions of this and older attempts, each in its last phase."""
        found: dict[str, tuple[Phase, Entry]] = {}
        names = self._storage.children("")
        for phase in Phase:
            for name in (name for name in names if name.endswith(phase.value)):
                with contextlib.suppress(FileNotFoundError):
                    entry = _decode(self._storage.read(name))
                    if is_no_later(entry.context.attempt, self._attempt):
                        found[entry.context.name] = phase, entry
        return list(found.values())

    def tidy(self) -> None:
        """Remove a local directory that is empty."""
        if isinstance(self.place, Path):
            with contextlib.suppress(OSError):
                self.place.rmdir()

    def _write(self, entry: Entry, phase: Phase) -> None:
        self._storage.replace(self._name(entry.context, phase), _encode(entry))

    def _rename(self, directory: Path, entries: Iterable[Entry]) -> None:
        """Do it with one sync for all; a store has no rename."""
        for context in (entry.context for entry in entries):
            old, new = (self._name(context, p) for p in (Phase.PREPARED, Phase.COMMITTING))
            with contextlib.suppress(FileNotFoundError):
                (directory / old).rename(directory / new)
        if directory.exists():
            sync_directory(directory)

    def _name(self, context: TransactionContext, phase: Phase) -> str:
        name = f"{context._key}{phase.value}"
        if "/" in name or "\0" in name:
            raise UnsafeNameError(name, str(self.place))
        return name
