"""Writes staged rows into the table, once: in prepared or in ordinary transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from penstock.connectors.postgres.database import Connection, Database, driver, server_message
from penstock.connectors.postgres.names import attempt_number_of, listed, quoted_text
from penstock.connectors.postgres.transactions.committable import PostgresCommittable, RowBatch
from penstock.connectors.postgres.transactions.fencing import terminate_connections
from penstock.connectors.postgres.transactions.ledger import CommitLedger
from penstock.connectors.staging.staged_output import StagedOutput, read_staged
from penstock.errors import PostgresSetupError, RefusedRowsError


def prepare(
    database: Database, ledger: CommitLedger, committable: PostgresCommittable, *, retry: bool
) -> None:
    """Load rows in a transaction and prepare it under its gid.

    Called at a barrier, in a thread per subtask. ``retry`` says that an earlier call failed, at
    any point: it may have succeeded although its connection broke, or may still succeed. So its
    connection is terminated first, and then its prepared transaction rolled back.
    """
    # The connection is named after the transaction: other subtasks prepare theirs concurrently.
    gid, table, purpose = committable.gid, committable.table, committable.gid.split("-")[5]

    def try_once(number: int) -> None:
        if retry or number > 0:
            with closing(database.connect("settle")) as connection:
                name = database.identity.application_name(purpose)
                terminate_connections(connection, name, database)
                _roll_back(connection, gid)
        with closing(database.connect(purpose)) as connection:
            connection.execute("BEGIN")
            # Not held: a prepared transaction would block the next attempt's fence.
            ledger.check_fence(connection)
            if not ledger.record(connection, gid, committable.rows):
                return  # an earlier try prepared it, and another process has committed it
            with translate_rejection(table), translate_lock_timeout(table):
                load(connection, committable.target, Path(committable.root), committable.batches)
                # The ledger entry is prepared with the rows: both become visible, or neither.
                connection.execute(f"PREPARE TRANSACTION {quoted_text(gid)}")

    database.with_retries(f"preparing {committable.rows} rows for {table}", try_once)


def commit_from_files(
    connection: Connection, ledger: CommitLedger, committable: PostgresCommittable, target: str
) -> bool:
    """Load rows in an ordinary transaction; False if they were committed before.

    ``target`` is the table's quoted name: what a snapshot holds is never part of a statement. The
    gid is unique in the ledger, so that of two such transactions, or of one and a prepared
    one, only one is committed.
    """
    table = committable.table
    with translate_rejection(table), connection.transaction():
        ledger.hold_fence(connection)
        if not ledger.record(connection, committable.gid, committable.rows):
            return False
        with translate_lock_timeout(table):
            load(connection, target, Path(committable.root), committable.batches)
    return True


def load(connection: Connection, target: str, root: Path, batches: Sequence[RowBatch]) -> None:
    """COPY batches into a table, in order, inside a transaction of the caller."""
    for batch in batches:
        copy_rows(connection, target, batch.columns, root, batch.outputs)


def copy_rows(
    connection: Connection,
    target: str,
    columns: Sequence[str],
    root: Path,
    outputs: Sequence[StagedOutput],
) -> None:
    """COPY staged rows, whose files are below ``root``, into a table with a quoted name."""
    statement = f"COPY {target} ({listed(columns)}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block in read_staged(root, outputs):
            copy.write(block)


@contextmanager
def translate_rejection(table: str) -> Iterator[None]:
    """Translate what the server rejects, immediately or at the commit, to `RefusedRowsError`."""
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
        raise RefusedRowsError(table, server_message(error)) from error


@contextmanager
def translate_lock_timeout(table: str) -> Iterator[None]:
    """Translate a lock timeout to `RefusedRowsError`."""
    try:
        yield
    except driver().errors.LockNotAvailable as error:
        reason = (
            f"waited too long for a lock: {server_message(error)}; either another session locks "
            "the table, or subtasks write rows with the same unique key, and a prepared row blocks "
            "the others"
        )
        raise RefusedRowsError(table, reason) from error


def prepared_gids(connection: Connection, prefix: str) -> list[str]:
    """Return the prepared transactions of this database whose gids have a prefix."""
    rows = connection.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE %s",
        (f"{prefix}%",),
    )
    return [gid for (gid,) in rows]


def roll_back_prepared(
    database: Database, connection: Connection, *, below: int, keep: Collection[str] = ()
) -> None:
    """Roll back what attempts of this sink before ``below`` have prepared, except ``keep``."""
    for gid in prepared_gids(connection, database.identity.prefix):
        number = attempt_number_of(gid)
        if gid not in keep and number is not None and number < below:
            _roll_back(connection, gid)


def _roll_back(connection: Connection, gid: str) -> None:
    """Roll back a prepared transaction if it exists."""
    psycopg = driver()
    statement = f"ROLLBACK PREPARED {quoted_text(gid)}"
    try:
        connection.execute(statement)
    except psycopg.errors.UndefinedObject:
        return
    except psycopg.errors.InsufficientPrivilege as error:
        remedy = f"run {statement} as its owner; use one role for all runs of a job"
        raise PostgresSetupError(connection.info.dbname, server_message(error), remedy) from error
