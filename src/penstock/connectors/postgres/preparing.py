"""Bringing rows into the table, each of the two ways once and only once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.connectors.postgres.books import Books
from penstock.connectors.postgres.committables import OwedRows
from penstock.connectors.postgres.database import Connection, Database, driver, told
from penstock.connectors.postgres.fence import end_connections
from penstock.connectors.postgres.identity import attempt_in
from penstock.connectors.postgres.loading import load
from penstock.connectors.postgres.names import quoted_text
from penstock.errors import PostgresSetupError, RefusedRowsError

__all__ = ["load_and_commit", "prepare", "prepared_gids", "refusals", "roll_back_prepared", "waits"]


def prepare(database: Database, books: Books, owed: OwedRows, *, again: bool) -> None:
    """Load rows in a transaction of their gid, and prepare it.

    Called at a barrier, in a thread per subtask. ``again`` says that it may have been called
    before and failed anywhere. A try whose connection broke may have succeeded, or may still
    succeed: so its connection is ended first, and then what it prepared rolled back.
    """
    database.patiently(
        f"preparing {owed.rows} rows for {owed.table}",
        lambda number: _prepare(database, books, owed, again=again or number > 0),
    )


def _prepare(database: Database, books: Books, owed: OwedRows, *, again: bool) -> None:
    # Named after the transaction: other subtasks prepare theirs at the same time.
    purpose = owed.gid.split("-")[5]
    if again:
        with database.connected("settle") as connection:
            end_connections(connection, database.identity.application_name(purpose), database)
            _roll_back(connection, owed.gid)
    with database.connected(purpose) as connection:
        connection.execute("BEGIN")
        # Not held: a prepared transaction would keep the next attempt from taking over.
        books.check(connection)
        if not books.enter(connection, owed.gid, owed.rows):
            return  # an earlier try prepared it, and somebody else has committed that
        with refusals(owed.table), waits(owed.table):
            load(connection, owed.target, Path(owed.root), owed.batches)
            connection.execute(f"PREPARE TRANSACTION {quoted_text(owed.gid)}")


def load_and_commit(connection: Connection, books: Books, owed: OwedRows) -> bool:
    """Load rows in an ordinary transaction; false if they were committed before.

    The ledger's unique gid keeps two of these, and one that is prepared, from both taking place.
    """
    with refusals(owed.table), connection.transaction():
        books.hold(connection)
        if not books.enter(connection, owed.gid, owed.rows):
            return False
        with waits(owed.table):
            load(connection, owed.target, Path(owed.root), owed.batches)
    return True


@contextmanager
def refusals(table: str) -> Iterator[None]:
    """Turn what the server has against rows, at once or in the end, into `RefusedRowsError`."""
    psycopg = driver()
    try:
        yield
    except (
        psycopg.DataError,
        psycopg.IntegrityError,
        psycopg.ProgrammingError,
        psycopg.InternalError,
        psycopg.NotSupportedError,
    ) as error:
        raise RefusedRowsError(table, told(error)) from error


@contextmanager
def waits(table: str) -> Iterator[None]:
    """Turn a lock that rows waited for too long into `RefusedRowsError`."""
    try:
        yield
    except driver().errors.LockNotAvailable as error:
        reason = (
            f"waited too long for a lock: {told(error)}; either somebody locks the table, or "
            "subtasks have rows of the same unique key: a prepared row keeps the others waiting"
        )
        raise RefusedRowsError(table, reason) from error


def prepared_gids(connection: Connection, prefix: str) -> list[str]:
    """Return the prepared transactions of this database whose gids begin so."""
    rows = connection.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE %s",
        (f"{prefix}%",),
    )
    return [gid for (gid,) in rows]


def roll_back_prepared(
    connection: Connection, database: Database, *, below: int, keep: Collection[str] = ()
) -> None:
    """Roll back what attempts of this sink below a number have prepared, but some."""
    for gid in prepared_gids(connection, database.identity.prefix):
        number = attempt_in(gid)
        if gid not in keep and number is not None and number < below:
            _roll_back(connection, gid)


def _roll_back(connection: Connection, gid: str) -> None:
    """Roll a prepared transaction back, if it is there."""
    psycopg = driver()
    statement = f"ROLLBACK PREPARED {quoted_text(gid)}"
    try:
        connection.execute(statement)
    except psycopg.errors.UndefinedObject:
        return
    except psycopg.errors.InsufficientPrivilege as error:
        remedy = f"let who may do it run {statement}; use one role for all runs of a job"
        raise PostgresSetupError(connection.info.dbname, told(error), remedy) from error
