"""The sink's own two tables in the database: the fence and the commit ledger.

The *fence* holds, for each sink, the number of the attempt that may write. The *ledger* holds a row
for each committed transaction, written by that transaction itself. So a transaction is in the
ledger if and only if it is committed, whatever responses were lost.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.connectors.postgres.database import Connection, Database, driver, server_message
from penstock.connectors.postgres.names import SinkIdentity, attempt_number_of, quoted, sink_key_of
from penstock.errors import FencedError, PostgresSetupError

_MAX_TRIES = 5
_FENCE_COLUMNS = (
    "sink text PRIMARY KEY, job text NOT NULL, step text NOT NULL, attempt bigint NOT NULL, "
    "taken_at timestamptz NOT NULL"
)
_LEDGER_COLUMNS = (
    "gid text PRIMARY KEY, sink text NOT NULL, attempt bigint NOT NULL, "
    "row_count bigint NOT NULL, entered_at timestamptz NOT NULL"
)


def ledger_ddl(schema: str) -> list[str]:
    """Return the statements that create both tables."""
    return [
        f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}",
        f"CREATE TABLE IF NOT EXISTS {_fence(schema)} ({_FENCE_COLUMNS})",
        f"CREATE TABLE IF NOT EXISTS {_ledger(schema)} ({_LEDGER_COLUMNS})",
    ]


def _fence(schema: str) -> str:
    return f"{quoted(schema)}.penstock_fence"


def _ledger(schema: str) -> str:
    return f"{quoted(schema)}.penstock_ledger"


class CommitLedger:
    """The fence and the ledger, as the sink of one attempt uses them on its connections."""

    def __init__(self, identity: SinkIdentity, schema: str) -> None:
        self._identity = identity
        self._schema = schema
        self._fence = _fence(schema)
        self._ledger = _ledger(schema)

    def create_tables(self, connection: Connection, database: Database) -> None:
        """Create the tables if they do not exist; other sinks may do the same concurrently."""
        psycopg = driver()
        conflicts = (
            psycopg.errors.UniqueViolation,
            psycopg.errors.DuplicateTable,
            psycopg.errors.DuplicateSchema,
        )
        for number in range(_MAX_TRIES):
            if self._tables_exist(connection):
                return
            try:
                for statement in ledger_ddl(self._schema):
                    connection.execute(statement)
            except conflicts:
                if number == _MAX_TRIES - 1:
                    raise
            except psycopg.errors.InsufficientPrivilege as error:
                statements = "; ".join(ledger_ddl(self._schema))
                remedy = f"run as a privileged role: {statements}; then grant access to both tables"
                raise PostgresSetupError(repr(database), server_message(error), remedy) from error

    def _tables_exist(self, connection: Connection) -> bool:
        query = "SELECT to_regclass(%s) IS NOT NULL AND to_regclass(%s) IS NOT NULL"
        row = connection.execute(query, (self._fence, self._ledger)).fetchone()
        return bool(row and row[0])

    # -- the fence --------------------------------------------------------------------------

    def acquire_fence(self, connection: Connection) -> None:
        """Write this attempt's number to the fence; raises FencedError if a later one is there.

        Waits for transactions that hold the fence, up to the connection's lock timeout.
        """
        own = self._identity
        acquired = connection.execute(
            f"INSERT INTO {self._fence} AS fence (sink, job, step, attempt, taken_at) "
            "VALUES (%s, %s, %s, %s, now()) ON CONFLICT (sink) "
            "DO UPDATE SET attempt = excluded.attempt, taken_at = excluded.taken_at "
            "WHERE fence.attempt <= excluded.attempt RETURNING attempt",
            (own.key, own.job, own.step, own.number),
        ).fetchone()
        if acquired is None:
            self.check_fence(connection)

    def check_fence(self, connection: Connection, locking: str = "") -> None:
        """Raise FencedError if another attempt has the fence; it may be taken right after."""
        own = self._identity
        query = f"SELECT attempt FROM {self._fence} WHERE sink = %s{locking}"
        row = connection.execute(query, (own.key,)).fetchone()
        if row is None or row[0] != own.number:
            found = "of unknown number" if row is None else f"a{row[0]}"
            raise FencedError(own.job, own.attempt, found)

    def hold_fence(self, connection: Connection) -> None:
        """Check the fence, and keep others from acquiring it until the transaction ends."""
        self.check_fence(connection, " FOR SHARE")

    # -- the ledger -------------------------------------------------------------------------

    def record(self, connection: Connection, gid: str, rows: int) -> bool:
        """Record a transaction, from within it; False if it was committed before.

        Waits for a concurrent transaction with the same gid. The entry belongs to the sink that
        created the gid: if another job commits what a savepoint holds, that sink must find it.
        """
        cursor = connection.execute(
            f"INSERT INTO {self._ledger} (gid, sink, attempt, row_count, entered_at) "
            "VALUES (%s, %s, %s, %s, now()) ON CONFLICT (gid) DO NOTHING",
            (gid, sink_key_of(gid), attempt_number_of(gid), rows),
        )
        return cursor.rowcount == 1

    def contains(self, connection: Connection, gid: str) -> bool:
        """Return whether a transaction is committed."""
        query = f"SELECT 1 FROM {self._ledger} WHERE gid = %s"
        return connection.execute(query, (gid,)).fetchone() is not None

    def delete(self, connection: Connection, gids: Collection[str]) -> None:
        """Delete entries of this sink; entries of a job whose snapshot was restored stay."""
        connection.execute(
            f"DELETE FROM {self._ledger} WHERE sink = %s AND gid = ANY(%s)",
            (self._identity.key, list(gids)),
        )

    def delete_all_except(self, connection: Connection, keep: Collection[str]) -> None:
        """Delete the other entries of this attempt and older ones."""
        connection.execute(
            f"DELETE FROM {self._ledger} WHERE sink = %s AND attempt <= %s AND gid <> ALL(%s)",
            (self._identity.key, self._identity.number, list(keep)),
        )
