"""Rows that show with their micro-batch: put in by key, or appended."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from penstock.connectors.postgres.books import Books
from penstock.connectors.postgres.database import Connection, Database
from penstock.connectors.postgres.loading import copy_into
from penstock.connectors.postgres.names import listed, quoted
from penstock.connectors.postgres.preparing import refusals, waits
from penstock.connectors.postgres.row_files import RowFiles
from penstock.connectors.postgres.staged_rows import StagedRows, decode_staged
from penstock.connectors.postgres.table import Table
from penstock.connectors.sink import SinkPublisher
from penstock.errors import UnsuitableTableError

__all__ = ["DirectPublisher"]

_NUMBER = "penstock_number"
_DELETE = "penstock_delete"
_TEMPORARY = "pg_temp.penstock_rows"


def _last_of_each(keys: Sequence[str]) -> str:
    by_key = listed(keys)
    return f"SELECT DISTINCT ON ({by_key}) * FROM {_TEMPORARY} ORDER BY {by_key}, {_NUMBER} DESC"


def delete_sql(target: str, keys: Sequence[str]) -> str:
    """Return what takes away rows whose key was deleted last."""
    same = " AND ".join(f"old.{quoted(key)} = last.{quoted(key)}" for key in keys)
    last = _last_of_each(keys)
    return f"DELETE FROM {target} AS old USING ({last}) AS last WHERE {_DELETE} AND {same}"


def upsert_sql(target: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Return what brings rows from the temporary table into the real one, the last of each key."""
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

    A restored job writes again what it repeats: by key that changes nothing in the end, since the
    rows of a key come again in the same order. Each transaction holds the fence, so that an older
    attempt cannot put old rows over new ones.
    """

    def __init__(
        self, database: Database, books: Books, table: Table, keys: Sequence[str], files: RowFiles
    ) -> None:
        self._database = database
        self._books = books
        self._table = table
        self._keys = tuple(keys)
        self._files = files
        self._connection: Connection | None = None
        self._temporary: tuple[str, ...] | None = None

    def publish(self, staged: Sequence[bytes]) -> None:
        batches: dict[tuple[str, ...], list[StagedRows]] = {}
        for entry in filter(None, staged):
            rows = decode_staged(entry)
            columns = self._table.check_rows(rows.columns, rows.width, rows.arrays)
            missing = [key for key in self._keys if key not in columns]
            if missing:
                reason = f"the rows have no key column {missing[0]!r}: they have {columns}"
                raise UnsuitableTableError(self._table.name, reason)
            batches.setdefault(columns, []).append(rows)
        if batches:
            what = f"writing into {self._table.name}"
            self._database.patiently(what, lambda _: self._write(batches))
        root = self._files.root
        staged_rows = [rows for batch in batches.values() for rows in batch]
        self._files.forget(rows.piece.path(root) for rows in staged_rows if rows.piece.name)

    def _write(self, batches: dict[tuple[str, ...], list[StagedRows]]) -> None:
        try:
            connection = self._connected()
            with refusals(self._table.name), waits(self._table.name), connection.transaction():
                self._books.hold(connection)
                for columns, batch in batches.items():
                    self._load(connection, columns, batch)
        except BaseException:
            self._disconnect()
            raise

    def _load(
        self, connection: Connection, columns: tuple[str, ...], batch: Sequence[StagedRows]
    ) -> None:
        target, pieces = self._table.target, [rows.piece for rows in batch]
        if not self._keys:
            copy_into(connection, target, columns, self._files.root, pieces)
            return
        self._make_temporary(connection, columns)
        copy_into(connection, _TEMPORARY, (_DELETE, *columns), self._files.root, pieces)
        if any(rows.deletes for rows in batch):
            connection.execute(delete_sql(target, self._keys))
        connection.execute(upsert_sql(target, columns, self._keys))

    def _make_temporary(self, connection: Connection, columns: tuple[str, ...]) -> None:
        """Make the temporary table empty, once per connection unless the columns change."""
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
        self._disconnect()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect("publish")
            self._connection.execute("SET work_mem = '64MB'")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._temporary = None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()
