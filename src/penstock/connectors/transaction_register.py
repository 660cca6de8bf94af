"""Transactions somewhere else that nobody may forget: what was begun, prepared, being committed.

A driver that dies leaves transactions behind which only their names can end. So each one is
written down, in a small file of its own, before it is opened, and struck off when it is committed
or aborted. What an attempt finds here of its predecessors is all they can have left.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from uuid import uuid4

import msgspec

from penstock.connectors.durable import make_directory, sync_directory
from penstock.ids import is_no_later

__all__ = ["Entry", "Phase", "TransactionContext", "TransactionRegister"]


class TransactionContext(msgspec.Struct, frozen=True, array_like=True):
    """Who opens a transaction: nobody opens two with the same ``name``, in no run of any job.

    ``step`` is the sink's uid in a form that can name a file. ``checkpoint`` is the one whose
    barrier cut these values off; another one may hold them if it is aborted. ``token`` is drawn
    by lot: a second try, and a job of the same name somewhere else, get another one.
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
    """How far a transaction had come, for all that is known; the value ends a file's name."""

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
    """The transactions of one step, seen by one attempt.

    Entries are durable when a method returns. One that is struck off may come back after a power
    loss: whoever ends it again must find that done.
    """

    def __init__(self, directory: Path, attempt: str) -> None:
        self._dir = directory
        self._attempt = attempt

    @property
    def directory(self) -> Path:
        """Where the entries are."""
        return self._dir

    def open(self, context: TransactionContext) -> None:
        """Write down a transaction that will be opened next."""
        make_directory(self._dir)
        self._write(Entry(context), Phase.OPENED)

    def has(self, context: TransactionContext) -> bool:
        """Tell whether a transaction of this attempt is still its own.

        It is not if a later attempt has aborted it, having taken over.
        """
        return any(self._path(context, phase).exists() for phase in Phase)

    def prepare(self, context: TransactionContext, committable: bytes) -> None:
        """Write down what will commit a transaction."""
        self._write(Entry(context, committable), Phase.PREPARED)
        self._path(context, Phase.OPENED).unlink(missing_ok=True)

    def commit(self, contexts: Iterable[TransactionContext]) -> None:
        """Write down that transactions may be committed from now on: none is aborted any more.

        Those that are not in the register were ended before, or belong to nobody here.
        """
        for context in contexts:
            with contextlib.suppress(FileNotFoundError):
                self._path(context, Phase.PREPARED).rename(self._path(context, Phase.COMMITTING))
        if self._dir.exists():
            sync_directory(self._dir)

    def end(self, context: TransactionContext) -> None:
        """Strike off a transaction that is committed or aborted."""
        for phase in Phase:
            self._path(context, phase).unlink(missing_ok=True)

    def entries(self) -> list[tuple[Phase, Entry]]:
        """Return what this attempt and older ones have not ended, each in its last phase."""
        found: dict[str, tuple[Phase, Entry]] = {}
        for phase in Phase:
            for path in sorted(self._dir.glob(f"*{phase.value}")):
                with contextlib.suppress(FileNotFoundError):
                    entry = _decode(path.read_bytes())
                    if is_no_later(entry.context.attempt, self._attempt):
                        found[entry.context.name] = phase, entry
        return list(found.values())

    def tidy(self) -> None:
        """Remove what a crash left half written, and the directory if nothing is in it."""
        for path in self._dir.glob("*.new"):
            if is_no_later(path.name.partition("-")[0], self._attempt):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._dir.rmdir()

    def _write(self, entry: Entry, phase: Phase) -> None:
        path = self._path(entry.context, phase)
        new = path.with_name(f"{path.name}.new")
        with new.open("wb") as file:
            file.write(_encode(entry))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_directory(self._dir)

    def _path(self, context: TransactionContext, phase: Phase) -> Path:
        return self._dir / f"{context._key}{phase.value}"
