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

from penstock.common.contained_paths import path_inside
from penstock.ids import is_no_later
from penstock.storage.durable_files import (
    make_directory,
    replace_file,
    sync_directory,
)


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

    def __init__(self, directory: Path, attempt: str) -> None:
        self.directory = directory
        self._attempt = attempt

    def open(self, context: TransactionContext) -> None:
        """Register a transaction before it is opened."""
        make_directory(self.directory)
        self._write(Entry(context), Phase.OPENED)

    def has(self, context: TransactionContext) -> bool:
        """Whether a transaction of this attempt is still registered.

        It is not if a later attempt has taken over and aborted it.
        """
        return any(self._path(context, phase).exists() for phase in Phase)

    def prepare(self, context: TransactionContext, committable: bytes) -> None:
        """Record the committable of a transaction that is prepared."""
        self._write(Entry(context, committable), Phase.PREPARED)
        self._path(context, Phase.OPENED).unlink(missing_ok=True)

    def commit(self, contexts: Iterable[TransactionContext]) -> None:
        """Record that transactions may be committed from now on, so that none is aborted any more.

        Transactions that are not registered ended before, or belong to another job.
        """
        for context in contexts:
            with contextlib.suppress(FileNotFoundError):
                self._path(context, Phase.PREPARED).rename(self._path(context, Phase.COMMITTING))
        if self.directory.exists():
            sync_directory(self.directory)

    def end(self, context: TransactionContext) -> None:
        """Remove a transaction that is committed or aborted."""
        for phase in Phase:
            self._path(context, phase).unlink(missing_ok=True)

    def entries(self) -> list[tuple[Phase, Entry]]:
        """Return the open transactions of this and older attempts, each in its last phase."""
        found: dict[str, tuple[Phase, Entry]] = {}
        for phase in Phase:
            for path in sorted(self.directory.glob(f"*{phase.value}")):
                with contextlib.suppress(FileNotFoundError):
                    entry = _decode(path.read_bytes())
                    if is_no_later(entry.context.attempt, self._attempt):
                        found[entry.context.name] = phase, entry
        return list(found.values())

    def tidy(self) -> None:
        """Remove files that a crash left half written, and the directory if it is empty."""
        for path in self.directory.glob("*.new"):
            if is_no_later(path.name.partition("-")[0], self._attempt):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def _write(self, entry: Entry, phase: Phase) -> None:
        replace_file(self._path(entry.context, phase), _encode(entry))

    def _path(self, context: TransactionContext, phase: Phase) -> Path:
        return path_inside(self.directory, f"{context._key}{phase.value}")
