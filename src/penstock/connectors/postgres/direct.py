"""Rows that show with their micro-batch: put in by key, or appended."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from penstock.connectors.postgres.books import Books
from penstock.connectors.postgres.database import Connection, Database, driver, told
from penstock.connectors.postgres.loading import copy_into
from penstock.connectors.postgres.names import listed, quoted
from penstock.connectors.postgres.row_files import RowFiles, RowPiece
from penstock.connectors.postgres.staged_rows import decode_staged
from penstock.connectors.postgres.table import Table
from penstock.connectors.sink import SinkPublisher
from penstock.errors import RefusedRowsError, UnsuitableTableError

__all__ = ["DirectPublisher", "upsert_sql"]

_NUMBER = "penstock_number"
_DELETE = "penstock_delete"
_TEMPORARY = "pg_temp.penstock_rows"


def upsert_sql(target: str, columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return what brings rows from the temporary table into the real one, the last of each key."""
    by_key = listed(keys)
    last = f"SELECT DISTINCT ON ({by_key}) * FROM {_TEMPORARY} ORDER BY {by_key}, {_NUMBER} DESC"
    same = " AND ".join(f"old.{quoted(key)} = last.{quoted(key)}" for key in keys)
    changes = ", ".join(
        f"{quoted(name)} = excluded.{quoted(name)}" for name in columns if name not in keys
    )
    return [
        f"DELETE FROM {target} AS old USING ({last}) AS last WHERE {_DELETE} AND {same}",
        f"INSERT INTO {target} ({listed(columns)}) SELECT {listed(columns)} FROM ({last}) AS last "
        f"WHERE NOT {_DELETE} ON CONFLICT ({by_key}) "
        + (f"DO UPDATE SET {changes}" if changes else "DO NOTHING"),
    ]


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

    def publish(self, staged: Sequence[bytes]) -> None:
        batches: dict[tuple[str, ...], list[RowPiece]] = {}
        for entry in filter(None, staged):
            rows = decode_staged(entry)
            columns = self._table.check_rows(rows.columns, rows.width, rows.arrays)
            missing = [key for key in self._keys if key not in columns]
            if missing:
                reason = f"the rows have no key column {missing[0]!r}: they have {columns}"
                raise UnsuitableTableError(self._table.name, reason)
            batches.setdefault(columns, []).append(rows.piece)
        if batches:
            what = f"writing into {self._table.name}"
            self._database.patiently(what, lambda _: self._write(batches))
        self._files.forget(piece for pieces in batches.values() for piece in pieces)

    def _write(self, batches: dict[tuple[str, ...], list[RowPiece]]) -> None:
        psycopg = driver()
        try:
            connection = self._connected()
            with connection.transaction():
                self._books.hold(connection)
                for columns, pieces in batches.items():
                    self._load(connection, columns, pieces)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
            raise RefusedRowsError(self._table.name, told(error)) from error
        except BaseException:
            self._disconnect()
            raise

    def _load(
        self, connection: Connection, columns: tuple[str, ...], pieces: Sequence[RowPiece]
    ) -> None:
        target = self._table.target
        if not self._keys:
            copy_into(connection, target, columns, pieces)
            return
        connection.execute(
            f"CREATE TEMPORARY TABLE penstock_rows ON COMMIT DROP AS SELECT false AS {_DELETE}, "
            f"{listed(columns)} FROM {target} WITH NO DATA"
        )
        connection.execute(
            f"ALTER TABLE {_TEMPORARY} ADD {_NUMBER} bigint GENERATED ALWAYS AS IDENTITY"
        )
        copy_into(connection, _TEMPORARY, (_DELETE, *columns), pieces)
        for statement in upsert_sql(target, columns, self._keys):
            connection.execute(statement)
        connection.execute(f"DROP TABLE {_TEMPORARY}")

    def close(self) -> None:
        self._database.close()
        self._disconnect()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect("publish")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()
