"""Taking a sink over from attempts that may still be alive.

Why nothing of an older attempt (a zombie: stopped for a minute, cut off from the journal) can
appear in the table, or stay behind and lock it, once `take_over` and the sweep are through:

1. The fence has this attempt's number, durably, before anything else is looked at. A transaction
   of the zombie that begins later reads the fence first and gives up.
2. A transaction that has read the fence before that belongs to a connection that the server lists
   under the zombie's name: a connection is listed before its first query runs. All of these are
   ended, and waited for until they are off the list. What was unprepared is rolled back by that.
3. What is prepared by now is in pg_prepared_xacts, and nothing more can come. What the restored
   checkpoint holds of it is committed, and the sweep rolls back the rest. Nothing is lost by that:
   who goes back to a savepoint finds no entry in the ledger and loads its rows from their files.
4. Rows loaded in the second phase, or by key, come in ordinary transactions that *hold* the
   fence: it is taken either after they have ended or, with their connection, before they commit.
5. A zombie that commits a prepared transaction commits what some completed checkpoint holds, as
   the successor does. It does so once: who is late finds the ledger's entry or, long after, the
   fence.

All this is only as good as the names: attempts of a job must use the same role (another one's
connections are neither named nor ended) and no connection pool that gives names of its own.
"""

from __future__ import annotations

import time

from penstock.connectors.postgres.books import Books
from penstock.connectors.postgres.database import Connection, Database, driver, told
from penstock.connectors.postgres.identity import attempt_in
from penstock.errors import PostgresSetupError

__all__ = ["end_connections", "take_over"]

_PATIENCE_SECONDS = 30.0


def take_over(database: Database, books: Books) -> None:
    """Let this attempt alone write from now on.

    Called by whoever begins to publish or commit; may repeat. Raises FencedError if a later
    attempt did so.
    """
    database.patiently("taking over", lambda _: _take_over(database, books))


def _take_over(database: Database, books: Books) -> None:
    psycopg = driver()
    with database.connected("fence") as connection:
        books.ensure(connection, database)
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                connection.execute("SET lock_timeout = '1s'")
                books.take(connection)
                break
            except psycopg.errors.LockNotAvailable:
                # A connection that holds the fence may be that of a stopped process.
                if time.monotonic() > until:
                    raise
                _end_older(connection, database)
            except psycopg.errors.InsufficientPrivilege as error:
                remedy = "grant SELECT, INSERT, UPDATE and DELETE on both tables to the role"
                raise PostgresSetupError(repr(database), told(error), remedy) from error
        _end_older(connection, database)


def _end_older(connection: Connection, database: Database) -> None:
    mine = database.identity
    rows = connection.execute(
        "SELECT DISTINCT application_name FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE %s",
        (f"{mine.prefix}%",),
    ).fetchall()
    for (name,) in rows:
        number = attempt_in(name)
        if number is not None and number < mine.number:
            end_connections(connection, name, database)


def end_connections(connection: Connection, name: str, database: Database) -> None:
    """End all connections with a name, and wait until they are gone."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        left = connection.execute(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = %s AND datname = current_database() "
            "AND pid <> pg_backend_pid()",
            (name,),
        ).fetchall()
        if not left:
            return
        if time.monotonic() > until:
            reason = f"connection {name} (process {left[0][0]}) of an earlier attempt does not end"
            raise PostgresSetupError(repr(database), reason, "end it with pg_terminate_backend()")
        time.sleep(0.02)
