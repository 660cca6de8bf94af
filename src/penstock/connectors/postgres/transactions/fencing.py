"""Fences older attempts of a sink, which may still be running.

Why no row of an older attempt (a zombie: suspended for a minute, or partitioned from the journal)
can appear in the table, or block it with locks, after `fence_older_attempts` and the sweep:

1. The fence durably holds this attempt's number before anything else is examined. A transaction
   that the zombie begins later reads the fence first and fails.
2. A transaction that read the fence earlier belongs to a connection that the server lists under the
   zombie's name: a connection is listed before its first query runs. All of these are terminated,
   and waited for until they are off the list, which rolls back whatever was not prepared.
3. Whatever is prepared by then is in pg_prepared_xacts, and nothing is added. The part that the
   restored checkpoint holds is committed, and the sweep rolls back the rest. That loses nothing: a
   job that restores a savepoint finds no ledger entry and loads the rows from their files.
4. Rows loaded in the second phase, and upserts, use ordinary transactions that *hold* the fence:
   it is acquired after they end or, with their connection terminated, before they commit.
5. A zombie that commits a prepared transaction commits what some completed checkpoint holds, as its
   successor does. It is committed once: the later of the two finds the ledger entry or, much later,
   the fence.

All this depends on connection names: the attempts of a job must use the same role (connections of
another role are neither listed by name nor terminated) and no connection pooler that renames them.
"""

from __future__ import annotations

import time
from functools import partial

from penstock.connectors.postgres.database import Connection, Database, driver, server_message
from penstock.connectors.postgres.names import attempt_number_of
from penstock.connectors.postgres.transactions.ledger import CommitLedger
from penstock.errors import PostgresSetupError

_TIMEOUT_SECONDS = 30.0


def fence_older_attempts(database: Database, ledger: CommitLedger) -> None:
    """Let only this attempt write from now on; raises FencedError if a later one did so.

    Idempotent: called by the publisher and by the committer.
    """
    database.run("acquiring the fence", "fence", partial(_acquire, database, ledger))


def _acquire(database: Database, ledger: CommitLedger, connection: Connection) -> None:
    psycopg = driver()
    ledger.create_tables(connection, database)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("SET lock_timeout = '1s'")
            ledger.acquire_fence(connection)
            break
        except psycopg.errors.LockNotAvailable:
            # The holder may be a suspended process.
            if time.monotonic() > deadline:
                raise
            _terminate_older(connection, database)
        except psycopg.errors.InsufficientPrivilege as error:
            remedy = "grant SELECT, INSERT, UPDATE and DELETE on both tables to the role"
            raise PostgresSetupError(repr(database), server_message(error), remedy) from error
    _terminate_older(connection, database)


def _terminate_older(connection: Connection, database: Database) -> None:
    own = database.identity
    rows = connection.execute(
        "SELECT DISTINCT application_name FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE %s",
        (f"{own.prefix}%",),
    ).fetchall()
    for (name,) in rows:
        number = attempt_number_of(name)
        if number is not None and number < own.number:
            terminate_connections(connection, name, database)


def terminate_connections(connection: Connection, name: str, database: Database) -> None:
    """Terminate all connections with a name, and wait until they are gone."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        left = connection.execute(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = %s AND datname = current_database() "
            "AND pid <> pg_backend_pid()",
            (name,),
        ).fetchall()
        if not left:
            return
        if time.monotonic() > deadline:
            reason = (
                f"connection {name} (process {left[0][0]}) of an earlier attempt does not terminate"
            )
            raise PostgresSetupError(
                repr(database), reason, "terminate it with pg_terminate_backend()"
            )
        time.sleep(0.02)
