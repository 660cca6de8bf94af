"""The first phase of the commit: prepares a transaction per subtask at each barrier."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.connectors.contracts.sink import SinkPublisher, SinkSnapshot
from penstock.connectors.postgres.database import Database
from penstock.connectors.postgres.rows.writer import StagedRows, decode_staged
from penstock.connectors.postgres.table import Table
from penstock.connectors.postgres.transactions.committable import (
    PostgresCommittable,
    RowBatch,
    encode,
)
from penstock.connectors.postgres.transactions.ledger import CommitLedger
from penstock.connectors.postgres.transactions.prepared import prepare
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.connectors.staging.staged_output import PendingOutput
from penstock.connectors.staging.staging_directory import StagingDirectory

_MAX_CONNECTIONS = 8


class _PendingBatch:
    def __init__(self, columns: tuple[str, ...], staging: StagingDirectory) -> None:
        self.columns = columns
        self.rows = 0
        self.output = PendingOutput(staging)


class PendingRows:
    """Collects what each subtask published since the last barrier, in order."""

    def __init__(self, staging: StagingDirectory) -> None:
        self._staging = staging
        self._batches: defaultdict[int, list[_PendingBatch]] = defaultdict(list)

    def add(self, subtask: int, columns: tuple[str, ...], staged: StagedRows) -> None:
        """Add what a subtask staged in one micro-batch."""
        batches = self._batches[subtask]
        if not batches or batches[-1].columns != columns:
            batches.append(_PendingBatch(columns, self._staging))
        batches[-1].rows += staged.rows
        batches[-1].output.add(staged.output)

    def take(self) -> dict[int, list[RowBatch]]:
        """Return the batches of each subtask, and forget them."""
        batches = {
            subtask: [RowBatch(b.columns, b.rows, b.output.finish()) for b in pending]
            for subtask, pending in sorted(self._batches.items())
        }
        self._batches.clear()
        return batches


class PostgresPublisher(SinkPublisher):
    """Collects staged rows, and at a barrier makes them durable, in files and prepared.

    The files stay until the rows are committed: they replace a prepared transaction that is lost
    or was never created. A store gets them only if there is none, or for a savepoint: that may be
    restored when a later attempt has rolled its transactions back.
    """

    def __init__(
        self,
        database: Database,
        ledger: CommitLedger,
        table: Table,
        staging: StagingDirectory,
        *,
        two_phase: bool,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._table = table
        self._staging = staging
        self._two_phase = two_phase
        self._pending = PendingRows(staging)
        self._pre_commits = PreCommits()
        self._only_prepared: dict[str, PostgresCommittable] = {}
        """What is in no store, by gid, until it is committed."""

    def publish(self, staged: Sequence[bytes]) -> None:
        for subtask, entry in enumerate(staged):
            if entry:
                rows = decode_staged(entry)
                rows.output.check(self._staging.root)
                columns = self._table.check_rows(rows.columns, rows.width, rows.arrays)
                self._pending.add(subtask, columns, rows)

    def discard_staged(self, prefix: str) -> None:
        self._staging.remove_staged(prefix)

    def at_barrier(self, checkpoint: int, *, flush: bool) -> Callable[[], SinkSnapshot]:
        identity = self._database.identity
        committables = [
            PostgresCommittable(
                identity.gid(checkpoint, subtask, os.urandom(4).hex()),
                self._table.name,
                self._table.target,
                batches,
                self._two_phase,
                self._staging.place,
            )
            for subtask, batches in self._pending.take().items()
        ]
        prepared: dict[str, bool] = {}
        return self._pre_commits.add(lambda: self._prepare(committables, prepared, flush=flush))

    def close(self) -> None:
        self._database.close()

    def _prepare(
        self,
        committables: Sequence[PostgresCommittable],
        prepared: dict[str, bool],
        *,
        flush: bool,
    ) -> list[bytes]:
        """Make committables durable; called again if it raised.

        ``prepared`` holds, for each gid that was tried, whether it is known to be prepared.
        """
        left = [one for one in committables if self._two_phase and not prepared.get(one.gid)]
        with ThreadPoolExecutor(min(len(left), _MAX_CONNECTIONS) + 1, "prepare") as threads:
            # Disk and database work in parallel. A crash before both are done leaves no checkpoint
            # that refers to either.
            durable = threads.submit(self._make_durable, committables, is_savepoint=flush)
            list(threads.map(lambda one: self._prepare_one(one, prepared), left))
            durable.result()
        return [encode(one) for one in committables]

    def _make_durable(
        self, committables: Sequence[PostgresCommittable], *, is_savepoint: bool
    ) -> None:
        if self._staging.store is None or not self._two_phase:
            self._staging.make_durable(dict(map(self._upload, committables)))
            return
        self._only_prepared |= {one.gid: one for one in committables}
        for gid, (name, files) in [(g, self._upload(c)) for g, c in self._only_prepared.items()]:
            has_files = bool(files) and all(path.exists() for path, _ in files)
            if has_files and is_savepoint:
                # It may be committed, and its files removed, meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    self._staging.make_durable({name: files})
            if is_savepoint or not has_files:
                del self._only_prepared[gid]

    def _upload(self, committable: PostgresCommittable) -> tuple[str, list[tuple[Path, int]]]:
        return committable.upload, committable.moved(self._staging.root).files

    def _prepare_one(self, committable: PostgresCommittable, prepared: dict[str, bool]) -> None:
        retry = committable.gid in prepared
        prepared[committable.gid] = False
        here = committable.moved(self._staging.root)
        prepare(self._database, self._ledger, here, retry=retry)
        prepared[committable.gid] = True
