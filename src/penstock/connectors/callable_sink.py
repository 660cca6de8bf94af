"""Sinks made of the user's functions: exactly once with five of them, at least once with one."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import io
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.common import pickling
from penstock.connectors.committer import CommitRequest, Committer, CommitterContext
from penstock.connectors.held_values import HeldValues, remove_held_values
from penstock.connectors.pickled_values import PickledValuesWriter, chunks_of_values
from penstock.connectors.pre_commits import PreCommits
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkCut,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging import load_staged
from penstock.connectors.transaction_register import (
    Phase,
    TransactionContext,
    TransactionRegister,
)
from penstock.errors import SweptTransactionError

__all__ = ["AlreadyCommitted", "AtLeastOnceSink", "RetryLater", "TwoPhaseSink"]

logger = logging.getLogger("penstock.connectors")

Open = Callable[[TransactionContext], Any]
Write = Callable[[Any, list[Any]], None]
Prepare = Callable[[Any], Any]
Commit = Callable[[Any], None]
Abort = Callable[[TransactionContext, Any, Any], None]

_CHUNK_VALUES = 4096


class RetryLater(Exception):
    """Raised by a `TwoPhaseSink`'s ``commit``: not now, ask again after a pause."""


class AlreadyCommitted(Exception):
    """Raised by a `TwoPhaseSink`'s ``commit``: an earlier call has done that."""


@dataclass(frozen=True, slots=True)
class _Functions:
    open: Open
    write: Write
    prepare: Prepare
    commit: Commit
    abort: Abort | None

    def try_to_abort(
        self, context: TransactionContext, transaction: Any, committable: bytes | None
    ) -> bool:
        """Abort; false, and a warning, if that fails: somebody has to try again."""
        if self.abort is None:
            return True
        try:
            prepared = None if committable is None else pickling.loads(committable)
            self.abort(context, transaction, prepared)
        except Exception:
            logger.warning(
                "transaction %s cannot be aborted now; the next attempt of its job will try again",
                context.name,
                exc_info=True,
            )
            return False
        return True


class _StagingSink(Sink):
    """What tasks get of these sinks: the user's functions stay in the program that has them."""

    checks_type = False  # the writer fits every value itself

    def writer(self, context: WriterContext) -> SinkWriter:
        return PickledValuesWriter(context)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        message = f"step {context.name!r}: a sink by functions publishes where it was made"
        raise TypeError(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _StagingSink, ()


class TwoPhaseSink(_StagingSink):
    """Exactly once into any system that can prepare output now and show it later.

    All functions run on the driver, and never leave its process. At the barrier of a checkpoint,
    for each subtask that has values:

    - ``open(context)`` begins a transaction, named after ``context.name``;
    - ``write(transaction, values)`` takes up to 4,096 values at a time, in order;
    - ``prepare(transaction)`` makes it durable, still unseen, and returns a *committable*: a small
      value that pickles and says all that is needed to commit, to any process.

    When the checkpoint is completed, ``commit(committable)`` shows it. After a crash it is called
    again, perhaps by another process, and must then change nothing: raise `AlreadyCommitted`
    or return. `RetryLater` asks for another call after a pause. Any other exception
    leaves open whether it took place: the job fails, and asks again when it is restored.

    ``abort(context, transaction, committable)`` removes what nobody will commit. ``transaction`` is
    there if this process has just failed with it, ``committable`` if it was prepared; a driver that
    died in between leaves neither, and the name must do. May repeat, may come for one that was
    never opened, and must not undo one that is committed. Without ``abort`` the other side has
    to end by itself what a dead client left.

    ``open``, ``write`` and ``prepare`` are called from one thread at a time, ``commit`` and
    ``abort`` perhaps from another at the same time.
    """

    def __init__(
        self,
        *,
        open: Open,  # noqa: A002 - the name users know
        write: Write,
        prepare: Prepare,
        commit: Commit,
        abort: Abort | None = None,
    ) -> None:
        self._functions = _Functions(open, write, prepare, commit, abort)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return _Publisher(self._functions, context)

    def committer(self, context: CommitterContext) -> Committer:
        return _Committer(self._functions, context)


class AtLeastOnceSink(_StagingSink):
    """Calls ``write(values)`` on the driver with what each micro-batch has published.

    A list per subtask that has values, in order. What it raises fails the job. A restored job
    calls it again with all that came behind the restored checkpoint: exactly once in effect if
    writing twice is writing once. The function never leaves the driver's process.
    """

    def __init__(self, write: Callable[[list[Any]], None]) -> None:
        self._write = write

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return _WritingPublisher(self._write)


class _WritingPublisher(SinkPublisher):
    def __init__(self, write: Callable[[list[Any]], None]) -> None:
        self._write = write

    def publish(self, staged: Sequence[bytes]) -> None:
        for data in filter(None, map(load_staged, staged)):
            self._write(next(chunks_of_values(io.BytesIO(data), len(data), sys.maxsize)))


class _Prepared(msgspec.Struct, frozen=True, array_like=True):
    """A committable; ``register`` is where its transaction is written down."""

    context: TransactionContext
    register: str
    committable: bytes


_decode_prepared = msgspec.msgpack.Decoder(_Prepared).decode


class _Publisher(SinkPublisher):
    """Holds what is published, and prepares one transaction per subtask at a barrier."""

    def __init__(self, functions: _Functions, context: PublisherContext) -> None:
        self._functions = functions
        self._context = context
        self._register = _register(context)
        self._held = self._nothing()
        self._pre_commits = PreCommits()

    def _nothing(self) -> defaultdict[int, HeldValues]:
        context = self._context
        return defaultdict(lambda: HeldValues(context.work_dir, context.attempt))

    def publish(self, staged: Sequence[bytes]) -> None:
        for subtask, entry in enumerate(staged):
            if entry:
                self._held[subtask].add(entry)

    def at_barrier(self, checkpoint: int, *, roll_all: bool) -> Callable[[], SinkCut]:
        held, self._held = self._held, self._nothing()
        prepared: dict[int, bytes] = {}

        def prepare() -> list[bytes]:
            # Asked again after an error, it goes on where it failed.
            for subtask in sorted(held.keys() - prepared.keys()):
                prepared[subtask] = self._prepare(checkpoint, subtask, held[subtask])
                held[subtask].remove()
            return [prepared[subtask] for subtask in sorted(prepared)]

        return self._pre_commits.cut(prepare, list)

    def _prepare(self, checkpoint: int, subtask: int, values: HeldValues) -> bytes:
        context = TransactionContext(
            job=self._context.job,
            step=self._context.work_dir.name,
            attempt=self._context.attempt,
            checkpoint=checkpoint,
            subtask=subtask,
            parallelism=self._context.parallelism,
        )
        self._register.open(context)
        transaction = committable = None
        try:
            transaction = self._functions.open(context)
            for chunk in values.chunks(_CHUNK_VALUES):
                self._functions.write(transaction, chunk)
            self._check_is_mine(context)
            committable = pickling.dumps(self._functions.prepare(transaction))
            self._check_is_mine(context)
            self._register.prepare(context, committable)
        except Exception:
            if self._functions.try_to_abort(context, transaction, committable):
                self._register.end(context)
            raise
        return msgspec.msgpack.encode(
            _Prepared(context, str(self._register.directory), committable)
        )

    def _check_is_mine(self, context: TransactionContext) -> None:
        if not self._register.has(context):
            raise SweptTransactionError(context.name)


class _Committer(Committer):
    """Commits in order; what has to wait lets nothing behind it pass."""

    def __init__(self, functions: _Functions, context: CommitterContext) -> None:
        self._functions = functions
        self._context = context
        self._register = _register(context)

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        prepared = [_decode_prepared(request.get_committable()) for request in requests]
        self._write_down(prepared)
        waits = False
        for request, one in zip(requests, prepared, strict=True):
            if waits:
                request.retry_later()
                continue
            try:
                self._functions.commit(pickling.loads(one.committable))
            except AlreadyCommitted:
                request.signal_already_committed()
            except RetryLater as error:
                request.retry_later(error)
                waits = True
                continue
            except Exception as error:
                request.signal_failed_with_unknown_reason(error)
                waits = True
                continue
            for register in self._registers_of(one):
                register.end(one.context)

    def sweep(self, keep: Sequence[bytes]) -> None:
        needed = {_decode_prepared(kept).context.name for kept in keep}
        for phase, entry in self._register.entries():
            context = entry.context
            if context.name in needed:
                continue
            if phase is Phase.COMMITTING:
                logger.warning(
                    "transaction %s may be committed or not, and no snapshot of the job holds it: "
                    "it is left as it is",
                    context.name,
                )
            elif self._functions.try_to_abort(context, None, entry.committable):
                self._register.end(context)
        self._register.tidy()
        remove_held_values(self._context.work_dir, self._context.attempt)

    def _write_down(self, prepared: Sequence[_Prepared]) -> None:
        by_place: defaultdict[Path, list[TransactionContext]] = defaultdict(list)
        for one in prepared:
            for register in self._registers_of(one):
                by_place[register.directory].append(one.context)
        for place, contexts in by_place.items():
            TransactionRegister(place, self._context.attempt).commit(contexts)

    def _registers_of(self, prepared: _Prepared) -> list[TransactionRegister]:
        """Where it may be written down: a job's directory may be moved, or restored by another."""
        places = {self._register.directory, Path(prepared.register)}
        return [TransactionRegister(place, self._context.attempt) for place in places]


def _register(context: PublisherContext | CommitterContext) -> TransactionRegister:
    return TransactionRegister(context.work_dir / "transactions", context.attempt)
