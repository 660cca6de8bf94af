"""Publisher that writes rows with their micro-batch: as upserts by key, or appended."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from penstock.connectors.contracts.sink import SinkPublisher
from penstock.connectors.postgres.database import Connection, Database, ReusableConnection
from penstock.connectors.postgres.names import listed, quoted
from penstock.connectors.postgres.rows.writer import StagedRows, decode_staged
from penstock.connectors.postgres.table import Table
from penstock.connectors.postgres.transactions.ledger import CommitLedger
from penstock.connectors.postgres.transactions.prepared import (
    copy_rows,
    translate_lock_timeout,
    translate_rejection,
)
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import UnsuitableTableError

_NUMBER = "penstock_number"
_DELETE = "penstock_delete"
_TEMPORARY = "pg_temp.penstock_rows"


def _last_of_each(keys: Sequence[str]) -> str:
    by_key = listed(keys)
    return f"SELECT DISTINCT ON ({by_key}) * FROM {_TEMPORARY} ORDER BY {by_key}, {_NUMBER} DESC"


def delete_sql(target: str, keys: Sequence[str]) -> str:
    """Return the statement that deletes rows whose last change is a delete."""
    same = " AND ".join(f"old.{quoted(key)} = last.{quoted(key)}" for key in keys)
    last = _last_of_each(keys)
    return f"DELETE FROM {target} AS old USING ({last}) AS last WHERE {_DELETE} AND {same}"


def upsert_sql(target: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Return the statement that upserts the last row of each key from the temporary table."""
    changes = ", ".join(
        f"{quoted(name)} = excluded.{quoted(name)}" for name in columns if name not in keys
    )
    return (
        f"INSERT INTO {target} ({listed(columns)}) SELECT {listed(columns)} "
        f"FROM ({_last_of_each(keys)}) AS last WHERE NOT {_DELETE} ON CONFLICT ({listed(keys)}) "
        + (f"DO UPDATE SET {changes}" if changes else "DO NOTHING")
    )


class DirectPublisher(SinkPublisher):
    """Writes each micro-batch in one transaction when it is published.

    A restored job writes repeated micro-batches again: as upserts they change nothing in the end,
    since the rows of a key come in the same order. Each transaction holds the fence, so that an
    older attempt cannot overwrite newer rows.
    """

    def __init__(
        self,
        database: Database,
        ledger: CommitLedger,
        table: Table,
        keys: Sequence[str],
        staging: StagingDirectory,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._table = table
        self._keys = tuple(keys)
        self._staging = staging
        self._connection = ReusableConnection(database, "publish", self._on_connect)
        self._temporary: tuple[str, ...] | None = None

    def publish(self, staged: Sequence[bytes]) -> None:
        batches: dict[tuple[str, ...], list[StagedRows]] = {}
        for entry in filter(None, staged):
            rows = decode_staged(entry)
            columns = self._table.check_rows(rows.columns, rows.width, rows.arrays)
            missing = [key for key in self._keys if key not in columns]
            if missing:
                reason = f"the rows have no key column {missing[0]!r}, only {columns}"
                raise UnsuitableTableError(self._table.name, reason)
            batches.setdefault(columns, []).append(rows)
        if batches:
            what = f"writing into {self._table.name}"
            self._database.with_retries(what, lambda _: self._write(batches))
        root, written = self._staging.root, chain.from_iterable(batches.values())
        self._staging.remove(rows.output.path(root) for rows in written if rows.output.name)

    def discard_staged(self, prefix: str) -> None:
        self._staging.remove_staged(prefix)

    def _write(self, batches: dict[tuple[str, ...], list[StagedRows]]) -> None:
        try:
            connection, name = self._connection.get(), self._table.name
            with (
                translate_rejection(name),
                translate_lock_timeout(name),
                connection.transaction(),
            ):
                self._ledger.hold_fence(connection)
                for columns, batch in batches.items():
                    self._load(connection, columns, batch)
        except BaseException:
            self._connection.discard()
            raise

    def _load(
        self, connection: Connection, columns: tuple[str, ...], batch: Sequence[StagedRows]
    ) -> None:
        target, outputs = self._table.target, [rows.output for rows in batch]
        if not self._keys:
            copy_rows(connection, target, columns, self._staging.root, outputs)
            return
        self._clear_temporary(connection, columns)
        copy_rows(connection, _TEMPORARY, (_DELETE, *columns), self._staging.root, outputs)
        if any(rows.deletes for rows in batch):
            connection.execute(delete_sql(target, self._keys))
        connection.execute(upsert_sql(target, columns, self._keys))

    def _clear_temporary(self, connection: Connection, columns: tuple[str, ...]) -> None:
        """Empty the temporary table; creates it once per connection and set of columns."""
        if self._temporary == columns:
            connection.execute(f"TRUNCATE {_TEMPORARY}")
            return
        self._temporary = None
        connection.execute(f"DROP TABLE IF EXISTS {_TEMPORARY}")
        connection.execute(
            f"CREATE TEMPORARY TABLE penstock_rows AS SELECT false AS {_DELETE}, "
            f"{listed(columns)} FROM {self._table.target} WITH NO DATA"
        )
        connection.execute(
            f"ALTER TABLE {_TEMPORARY} ADD {_NUMBER} bigint GENERATED ALWAYS AS IDENTITY"
        )
        self._temporary = columns

    def close(self) -> None:
        self._database.close()
        self._connection.discard()

    def _on_connect(self, connection: Connection, is_replacement: bool) -> None:
        self._temporary = None
        connection.execute("SET work_mem = '64MB'")
