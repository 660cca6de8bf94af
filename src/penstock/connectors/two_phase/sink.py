"""Sinks made of the user's functions: exactly-once with five of them, at-least-once with one."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec

from penstock.common import pickling
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.committer import CommitRequest, Committer, CommitterContext
from penstock.connectors.contracts.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkSnapshot,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging.other_jobs import counterpart_place
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.connectors.staging.staged_output import (
    ImmediatePublisher,
    Spool,
    StagedOutput,
    load_staged,
)
from penstock.connectors.staging.staged_values import ValuesWriter, decode_values, read_values
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.connectors.two_phase.transaction_register import (
    Entry,
    Phase,
    TransactionContext,
    TransactionRegister,
)
from penstock.errors import AbortedTransactionError, UnsafeNameError

logger = logging.getLogger("penstock.connectors")

Open = Callable[[TransactionContext], Any]
Write = Callable[[Any, list[Any]], None]
Prepare = Callable[[Any], Any]
Commit = Callable[[Any], None]
Abort = Callable[[TransactionContext, Any, Any], None]

_CHUNK_VALUES = 4096


class RetryLater(Exception):
    """Raised by a `TwoPhaseSink`'s ``commit`` to be called again after a pause."""


class AlreadyCommitted(Exception):
    """Raised by a `TwoPhaseSink`'s ``commit`` if an earlier call has committed this."""


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
        """Abort; log a warning and return False if that fails, so that it is tried again."""
        if self.abort is None:
            return True
        try:
            prepared = None if committable is None else pickling.loads(committable)
            self.abort(context, transaction, prepared)
        except Exception:
            logger.warning(
                "Transaction %s could not be aborted; the next attempt of the job will try again.",
                context.name,
                exc_info=True,
            )
            return False
        return True


class _StagingSink(Sink):
    """The part of these sinks that tasks get: the user's functions stay on the driver."""

    checks_type = False  # the writer coerces every value itself

    def writer(self, context: WriterContext) -> SinkWriter:
        return ValuesWriter(context)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        message = f"step {context.name!r}: this sink only works where it was built"
        raise TypeError(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _StagingSink, ()


class TwoPhaseSink(_StagingSink):
    """Writes exactly once to any system that can prepare output now and make it visible later.

    All functions run on the driver and never leave its process. At the barrier of a checkpoint,
    for each subtask that has values:

    - ``open(context)`` begins a transaction, named after ``context.name``;
    - ``write(transaction, values)`` takes up to 4,096 values at a time, in order;
    - ``prepare(transaction)`` makes it durable but not yet visible, and returns a *committable*: a
      small picklable value with which any process can commit it.

    When the checkpoint completes, ``commit(committable)`` makes it visible. After a crash it is
    called again, possibly by another process, and must then change nothing: raise
    `AlreadyCommitted` or return. `RetryLater` requests another call after a pause. After any other
    exception the outcome is unknown: the job fails, and commits again when it is restored.

    ``abort(context, transaction, committable)`` removes a transaction that will not be committed.
    ``transaction`` is given if this process has just failed with it, ``committable`` if it was
    prepared. If a driver died in between, both are None and only the name identifies it. ``abort``
    may be called repeatedly and for a transaction that was never opened, and must not undo one
    that is committed. Without ``abort`` the external system has to end abandoned transactions.

    ``open``, ``write`` and ``prepare`` are called from one thread at a time, ``commit`` and
    ``abort`` possibly from another at the same time.
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

    def unpickles(self, type_info: TypeInformation | None) -> bool:
        return True  # its committables

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return _Publisher(self._functions, context)

    def committer(self, context: CommitterContext) -> Committer:
        return _Committer(self._functions, context)


class AtLeastOnceSink(_StagingSink):
    """Calls ``write(values)`` on the driver with the values of each published micro-batch.

    There is one call per subtask that has values, in order. An exception fails the job. A restored
    job writes everything after the restored checkpoint again, so the result is exactly-once if
    ``write`` is idempotent. The function never leaves the driver's process.
    """

    def __init__(self, write: Callable[[list[Any]], None]) -> None:
        self._write = write

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return ImmediatePublisher(
            context, lambda data: self._write(decode_values(data, context.type_info))
        )


class _Prepared(msgspec.Struct, frozen=True, array_like=True):
    """A committable; ``register`` is where its transaction is registered."""

    context: TransactionContext
    register: str
    committable: bytes


_decode_prepared = msgspec.msgpack.Decoder(_Prepared).decode


class _Publisher(SinkPublisher):
    """Spools published values, and prepares one transaction per subtask at a barrier.

    No store gets the values: the external system has them before a checkpoint names them.
    """

    def __init__(self, functions: _Functions, context: PublisherContext) -> None:
        self._functions = functions
        self._context = context
        self._register = _register(context)
        self._directory = _directory(context)
        self._spools: dict[int, Spool] = {}
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        for subtask, entry in enumerate(staged):
            if entry:
                if subtask not in self._spools:
                    self._spools[subtask] = Spool(self._directory, f"{uuid4().hex}.values")
                self._spools[subtask].add(load_staged(entry, self._context.staging_dir))

    def at_barrier(self, checkpoint: int, *, flush: bool) -> Callable[[], SinkSnapshot]:
        # Not synced: only this attempt reads them, and it ends with the driver.
        values = {subtask: spool.finish() for subtask, spool in self._spools.items()}
        self._spools = {}
        prepared: dict[int, bytes] = {}

        def prepare() -> list[bytes]:
            # Called again after an error, it continues with the subtask that failed.
            for subtask in sorted(values.keys() - prepared.keys()):
                output = values[subtask]
                prepared[subtask] = self._prepare(checkpoint, subtask, output)
                if output.name:
                    output.path(self._directory.root).unlink(missing_ok=True)
            return [prepared[subtask] for subtask in sorted(prepared)]

        return self._pre_commits.add(prepare)

    def close(self) -> None:
        for spool in self._spools.values():
            spool.abort()

    def _prepare(self, checkpoint: int, subtask: int, values: StagedOutput) -> bytes:
        context = TransactionContext(
            job=self._context.job,
            step=self._context.work_dir.name,
            attempt=self._context.attempt,
            checkpoint=checkpoint,
            subtask=subtask,
            parallelism=self._context.parallelism,
        )
        # Registered first: a crash after `open` leaves an entry by which the next attempt aborts.
        self._register.open(context)
        transaction = committable = None
        try:
            transaction = self._functions.open(context)
            type_info = self._context.type_info
            for chunk in read_values(self._directory.root, values, _CHUNK_VALUES, type_info):
                self._functions.write(transaction, chunk)
            self._check_is_registered(context)
            committable = pickling.dumps(self._functions.prepare(transaction))
            self._check_is_registered(context)
            self._register.prepare(context, committable)
        except Exception:
            if self._functions.try_to_abort(context, transaction, committable):
                self._register.end([context])
            raise
        return msgspec.msgpack.encode(_Prepared(context, str(self._register.place), committable))

    def _check_is_registered(self, context: TransactionContext) -> None:
        if not self._register.is_open(context):
            raise AbortedTransactionError(context.name)


class _Committer(Committer):
    """Commits in order: a transaction that has to wait makes all later ones wait."""

    def __init__(self, functions: _Functions, context: CommitterContext) -> None:
        self._functions = functions
        self._context = context
        self._register = _register(context)

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        prepared = [_decode_prepared(request.get_committable()) for request in requests]
        # Registered first: after a crash during `commit`, no attempt may abort these any more.
        entries = [Entry(one.context, one.committable) for one in prepared]
        try:
            for register in self._registers_of(prepared):
                register.commit(entries)
        except UnsafeNameError as error:
            for request in requests:
                request.signal_failed_with_known_reason(error)
            return
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
            for register in self._registers_of([one]):
                register.end([one.context])

    def sweep(self, keep: Sequence[bytes]) -> None:
        needed = {_decode_prepared(kept).context.name for kept in keep}
        for phase, entry in self._register.entries():
            context = entry.context
            if context.name in needed:
                continue
            if phase is Phase.COMMITTING:
                logger.warning(
                    "Transaction %s may or may not be committed, and no snapshot of the job holds "
                    "it: it is left as it is.",
                    context.name,
                )
            elif self._functions.try_to_abort(context, None, entry.committable):
                self._register.end([context])
        self._register.tidy()
        _directory(self._context).sweep(())

    def _registers_of(self, prepared: Sequence[_Prepared]) -> list[TransactionRegister]:
        """Where they may be registered: a job's directory may move, or one is another job's."""
        own, options = self._register.place, self._context.storage_options
        others = (counterpart_place(own, one.register, 2, options) for one in prepared)
        places = {own, *others}
        return [TransactionRegister(place, self._context.attempt) for place in places]


def _directory(context: PublisherContext | CommitterContext) -> StagingDirectory:
    return StagingDirectory(context.work_dir, context.attempt)


def _register(context: PublisherContext | CommitterContext) -> TransactionRegister:
    return TransactionRegister(
        (context.store or context.work_dir) / "transactions", context.attempt
    )
