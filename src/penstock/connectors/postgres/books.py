"""The sink's own two tables: who may write, and what is committed.

The *fence* holds for each sink the number of the attempt that may write. The *ledger* holds a row
for each transaction that was committed, written by that transaction itself: a committed one is
in the ledger and all others are not, whatever was lost on the way.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.connectors.postgres.database import Connection, Database, driver, told
from penstock.connectors.postgres.identity import SinkIdentity, attempt_in, sink_in
from penstock.connectors.postgres.names import quoted
from penstock.errors import FencedError, PostgresSetupError

__all__ = ["Books", "books_sql"]

_TRIES = 5
_FENCE_COLUMNS = (
    "sink text PRIMARY KEY, job text NOT NULL, step text NOT NULL, attempt bigint NOT NULL, "
    "taken_at timestamptz NOT NULL"
)
_LEDGER_COLUMNS = (
    "gid text PRIMARY KEY, sink text NOT NULL, attempt bigint NOT NULL, "
    "row_count bigint NOT NULL, entered_at timestamptz NOT NULL"
)


def books_sql(schema: str) -> list[str]:
    """Return the statements that make the two tables, for a role that may."""
    return [
        f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}",
        f"CREATE TABLE IF NOT EXISTS {_fence(schema)} ({_FENCE_COLUMNS})",
        f"CREATE TABLE IF NOT EXISTS {_ledger(schema)} ({_LEDGER_COLUMNS})",
    ]


def _fence(schema: str) -> str:
    return f"{quoted(schema)}.penstock_fence"


def _ledger(schema: str) -> str:
    return f"{quoted(schema)}.penstock_ledger"


class Books:
    """The two tables as one attempt's sink uses them, each call on a connection of its caller."""

    def __init__(self, identity: SinkIdentity, schema: str) -> None:
        self._identity = identity
        self._schema = schema
        self._fence = _fence(schema)
        self._ledger = _ledger(schema)

    def ensure(self, connection: Connection, database: Database) -> None:
        """Make the tables unless they are there; others may do the same at this moment."""
        psycopg = driver()
        clashes = (
            psycopg.errors.UniqueViolation,
            psycopg.errors.DuplicateTable,
            psycopg.errors.DuplicateSchema,
        )
        for number in range(_TRIES):
            if self._are_there(connection):
                return
            try:
                for statement in books_sql(self._schema):
                    connection.execute(statement)
            except clashes:
                if number == _TRIES - 1:
                    raise
            except psycopg.errors.InsufficientPrivilege as error:
                remedy = (
                    f"let a role that may run: {'; '.join(books_sql(self._schema))}; and grant it"
                )
                raise PostgresSetupError(repr(database), told(error), remedy) from error

    def _are_there(self, connection: Connection) -> bool:
        question = "SELECT to_regclass(%s) IS NOT NULL AND to_regclass(%s) IS NOT NULL"
        row = connection.execute(question, (self._fence, self._ledger)).fetchone()
        return bool(row and row[0])

    # -- the fence --------------------------------------------------------------------------

    def take(self, connection: Connection) -> None:
        """Put this attempt's number into the fence; refused if a later one is there.

        Waits for transactions that hold the fence, up to the connection's lock timeout.
        """
        mine = self._identity
        taken = connection.execute(
            f"INSERT INTO {self._fence} AS fence (sink, job, step, attempt, taken_at) "
            "VALUES (%s, %s, %s, %s, now()) ON CONFLICT (sink) "
            "DO UPDATE SET attempt = excluded.attempt, taken_at = excluded.taken_at "
            "WHERE fence.attempt <= excluded.attempt RETURNING attempt",
            (mine.key, mine.job, mine.step, mine.number),
        ).fetchone()
        if taken is None:
            self.check(connection)

    def check(self, connection: Connection) -> None:
        """Refuse to go on if another attempt is in the fence; it may be taken a moment later."""
        self._compare(connection, "")

    def hold(self, connection: Connection) -> None:
        """Refuse as `check` does, and let nobody take the fence until the transaction ends."""
        self._compare(connection, " FOR SHARE")

    def _compare(self, connection: Connection, locking: str) -> None:
        mine = self._identity
        query = f"SELECT attempt FROM {self._fence} WHERE sink = %s{locking}"
        row = connection.execute(query, (mine.key,)).fetchone()
        if row is None or row[0] != mine.number:
            found = "of unknown number" if row is None else f"a{row[0]}"
            raise FencedError(mine.job, mine.attempt, found)

    # -- the ledger -------------------------------------------------------------------------

    def enter(self, connection: Connection, gid: str, rows: int) -> bool:
        """Enter a transaction, inside of it; false if it was committed before.

        Waits for another transaction that enters the same. The entry is of the sink that made up
        the gid: a job that commits what another one's savepoint holds must not forget it.
        """
        cursor = connection.execute(
            f"INSERT INTO {self._ledger} (gid, sink, attempt, row_count, entered_at) "
            "VALUES (%s, %s, %s, %s, now()) ON CONFLICT (gid) DO NOTHING",
            (gid, sink_in(gid), attempt_in(gid), rows),
        )
        return cursor.rowcount == 1

    def has(self, connection: Connection, gid: str) -> bool:
        """Tell whether a transaction was committed."""
        query = f"SELECT 1 FROM {self._ledger} WHERE gid = %s"
        return connection.execute(query, (gid,)).fetchone() is not None

    def strike(self, connection: Connection, gids: Collection[str]) -> None:
        """Remove entries of this sink that nobody will ask for any more.

        Those of a job whose snapshot was restored are that job's.
        """
        connection.execute(
            f"DELETE FROM {self._ledger} WHERE sink = %s AND gid = ANY(%s)",
            (self._identity.key, list(gids)),
        )

    def strike_all_but(self, connection: Connection, keep: Collection[str]) -> None:
        """Remove all entries of this attempt and older ones but some."""
        connection.execute(
            f"DELETE FROM {self._ledger} WHERE sink = %s AND attempt <= %s AND gid <> ALL(%s)",
            (self._identity.key, self._identity.number, list(keep)),
        )
