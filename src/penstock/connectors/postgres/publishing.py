"""The driver's first phase: what a barrier cuts off becomes a prepared transaction per subtask."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.connectors.postgres.books import Books
from penstock.connectors.postgres.committables import OwedRows, encode
from penstock.connectors.postgres.database import Database
from penstock.connectors.postgres.pending_rows import PendingRows
from penstock.connectors.postgres.preparing import prepare
from penstock.connectors.postgres.row_files import RowFiles, check
from penstock.connectors.postgres.staged_rows import decode_staged
from penstock.connectors.postgres.table import Table
from penstock.connectors.pre_commits import PreCommits
from penstock.connectors.sink import SinkCut, SinkPublisher

__all__ = ["TransactionPublisher"]

_MOST_CONNECTIONS = 8


class TransactionPublisher(SinkPublisher):
    """Collects rows, and at a barrier makes them durable: in the database too, if it can prepare.

    The rows stay in their files until they are committed. So a prepared transaction that is gone,
    or was never made, is no loss.
    """

    def __init__(
        self, database: Database, books: Books, table: Table, files: RowFiles, *, two_phase: bool
    ) -> None:
        self._database = database
        self._books = books
        self._table = table
        self._files = files
        self._two_phase = two_phase
        self._pending = PendingRows(files)
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        for subtask, entry in enumerate(staged):
            if entry:
                rows = decode_staged(entry)
                check(self._files.root, rows.piece)
                columns = self._table.check_rows(rows.columns, rows.width, rows.arrays)
                self._pending.add(subtask, columns, rows)

    def at_barrier(self, checkpoint: int, *, roll_all: bool) -> Callable[[], SinkCut]:
        identity = self._database.identity
        owed = [
            OwedRows(
                identity.gid(checkpoint, subtask, os.urandom(4).hex()),
                self._table.name,
                self._table.target,
                batches,
                self._two_phase,
                str(self._files.root),
            )
            for subtask, batches in self._pending.cut().items()
        ]
        prepared: dict[str, bool] = {}
        return self._pre_commits.cut(lambda: self._prepare(owed, prepared), list)

    def close(self) -> None:
        self._database.close()

    def _prepare(self, owed: Sequence[OwedRows], prepared: dict[str, bool]) -> list[bytes]:
        """Make what was cut off durable; called again if it raised.

        ``prepared`` says of each gid that was tried whether it is known to be prepared.
        """
        left = [rows for rows in owed if self._two_phase and not prepared.get(rows.gid)]
        with ThreadPoolExecutor(min(len(left), _MOST_CONNECTIONS) + 1, "prepare") as threads:
            # The disk is slow in one way and the database in another: neither waits for the other.
            synced = threads.submit(
                self._files.sync, [piece for rows in owed for piece in rows.pieces]
            )
            list(threads.map(lambda rows: self._prepare_one(rows, prepared), left))
            synced.result()
        return [encode(rows) for rows in owed]

    def _prepare_one(self, rows: OwedRows, prepared: dict[str, bool]) -> None:
        again = rows.gid in prepared
        prepared[rows.gid] = False
        prepare(self._database, self._books, rows, again=again)
        prepared[rows.gid] = True
