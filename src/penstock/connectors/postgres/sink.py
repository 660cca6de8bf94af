"""Sink that writes rows into a table of PostgreSQL."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from penstock.common.time import Duration
from penstock.connectors.committer import Committer, CommitterContext
from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.postgres.books import Books
from penstock.connectors.postgres.committing_rows import TransactionCommitter
from penstock.connectors.postgres.database import Connection, Database, Dsn
from penstock.connectors.postgres.direct import DirectPublisher
from penstock.connectors.postgres.fence import take_over
from penstock.connectors.postgres.given import given_count, given_names, given_one, given_text
from penstock.connectors.postgres.identity import SinkIdentity
from penstock.connectors.postgres.preparing import roll_back_prepared
from penstock.connectors.postgres.publishing import TransactionPublisher
from penstock.connectors.postgres.row_files import RowFiles
from penstock.connectors.postgres.staged_rows import RowShape, RowWriter
from penstock.connectors.postgres.table import Table, look_at
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.errors import InvalidJobError, PostgresSetupError

__all__ = ["PostgresSink", "PostgresSinkBuilder"]

logger = logging.getLogger("penstock.connectors.postgres")


@dataclass(frozen=True, slots=True)
class _Settings:
    dsn: Dsn | None = None
    table: str = ""
    columns: tuple[str, ...] | None = None
    keys: tuple[str, ...] = ()
    json_columns: frozenset[str] = frozenset()
    guarantee: DeliveryGuarantee | None = None
    two_phase: bool = True
    max_retries: int = 10
    answer_timeout: float = 120.0
    schema_of_books: str = "penstock"

    @property
    def exactly_once(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def database(self, context: PublisherContext | CommitterContext) -> Database:
        assert self.dsn is not None
        identity = SinkIdentity(context.job, context.birth, context.work_dir.name, context.attempt)
        return Database(self.dsn, identity, self.max_retries, self.answer_timeout)


class PostgresSink(Sink):
    """Rows into a table: exactly once with checkpoints, or by key with every micro-batch.

    Exactly once, the rows of a checkpoint are prepared (PREPARE TRANSACTION) at its barrier and
    show when it is completed. By key (``set_key_columns``) a row takes the place of the one with
    the same key, and what a restored job writes again changes nothing in the end.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def __repr__(self) -> str:
        return f"PostgresSink({self._settings.table})"

    @staticmethod
    def builder() -> PostgresSinkBuilder:
        """Begin a sink."""
        return PostgresSinkBuilder()

    def writer(self, context: WriterContext) -> SinkWriter:
        settings = self._settings
        shape = RowShape(
            settings.table, settings.columns, settings.json_columns, deletes=bool(settings.keys)
        )
        return RowWriter(shape, context)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        settings, database = self._settings, self._settings.database(context)
        books = Books(database.identity, settings.schema_of_books)
        take_over(database, books)
        table = database.patiently(
            "looking at the table", lambda _: self._look(database, context.parallelism)
        )
        files = RowFiles(context.work_dir, context.attempt)
        if not settings.exactly_once:
            files.sweep([])
            return DirectPublisher(database, books, table, settings.keys, files)
        database.patiently("clearing up", lambda _: _give_up_older(database))
        return TransactionPublisher(database, books, table, files, two_phase=settings.two_phase)

    def committer(self, context: CommitterContext) -> Committer | None:
        settings = self._settings
        if not settings.exactly_once:
            return None
        database = settings.database(context)
        books = Books(database.identity, settings.schema_of_books)
        take_over(database, books)
        return TransactionCommitter(database, books, RowFiles(context.work_dir, context.attempt))

    def _look(self, database: Database, parallelism: int) -> Table:
        settings = self._settings
        with database.connected("look") as connection:
            if settings.exactly_once and settings.two_phase:
                _check_prepared_transactions(connection, database, parallelism)
            table = look_at(connection, settings.table)
            if settings.columns is not None:
                table.check_columns(settings.columns)
            table.check_known(sorted(settings.json_columns))
            if settings.keys:
                table.check_keys(settings.keys)
            return table


def _give_up_older(database: Database) -> None:
    """Roll back what older attempts prepared, whose rows this one may be about to write again.

    All that was restored is committed by now. The sweep does the same, but there is none while a
    snapshot cannot be read.
    """
    with database.connected("clear") as connection:
        roll_back_prepared(connection, database, below=database.identity.number)


def _check_prepared_transactions(
    connection: Connection, database: Database, parallelism: int
) -> None:
    row = connection.execute("SHOW max_prepared_transactions").fetchone()
    limit = int(row[0]) if row else 0
    if limit == 0:
        remedy = (
            "set it to at least twice the sink's parallelism and restart the server, or use "
            "set_two_phase(False)"
        )
        reason = "max_prepared_transactions is 0, and rows are prepared at a barrier"
        raise PostgresSetupError(repr(database), reason, remedy)
    if limit < 2 * parallelism:
        logger.warning(
            "%s: max_prepared_transactions is %d, less than twice the sink's parallelism (%d): "
            "pre-commits of two checkpoints may have to wait for each other",
            database,
            limit,
            parallelism,
        )


class PostgresSinkBuilder:
    """Builds a :class:`PostgresSink`."""

    def __init__(self) -> None:
        self._settings = _Settings()

    def set_dsn(self, dsn: str) -> PostgresSinkBuilder:
        """Name the database, as libpq does: ``host=db dbname=shop`` or ``postgresql://db/shop``.

        Leave the password to ``PGPASSWORD`` or ``~/.pgpass`` of the driver if you can.
        """
        if not isinstance(dsn, str):
            # Not repeated: whatever it is, a password may be in it.
            message = (
                "set_dsn() needs a text such as 'host=db dbname=shop'; "
                f"got an object of class {type(dsn).__name__}"
            )
            raise InvalidJobError(message)
        return self._with(dsn=Dsn(dsn))

    def set_table(self, table: str) -> PostgresSinkBuilder:
        """Name the table, ``table`` or ``schema.table``, in upper and lower case as it is."""
        return self._with(table=given_text("set_table", table))

    def set_columns(self, *columns: str) -> PostgresSinkBuilder:
        """Name the columns to write; by default the fields of the row type, else all in order."""
        return self._with(columns=given_names("set_columns", columns))

    def set_key_columns(self, *columns: str) -> PostgresSinkBuilder:
        """Write by key: a row replaces the one with the same values in these columns."""
        return self._with(keys=given_names("set_key_columns", columns))

    def set_json_columns(self, *columns: str) -> PostgresSinkBuilder:
        """Write whatever these columns get as JSON; elsewhere lists become arrays."""
        return self._with(json_columns=frozenset(given_names("set_json_columns", columns)))

    def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> PostgresSinkBuilder:
        """Choose EXACTLY_ONCE (the default without keys) or AT_LEAST_ONCE."""
        needed = "a DeliveryGuarantee, such as DeliveryGuarantee.AT_LEAST_ONCE"
        chosen = given_one("set_delivery_guarantee", DeliveryGuarantee, needed, guarantee)
        return self._with(guarantee=chosen)

    def set_two_phase(self, two_phase: bool) -> PostgresSinkBuilder:
        """Choose whether rows are prepared in the database at the barrier; they are by default.

        Without, they wait in files, and are loaded when the checkpoint is completed: for servers
        with ``max_prepared_transactions = 0``.
        """
        chosen = given_one("set_two_phase", bool, "True or False", two_phase)
        return self._with(two_phase=chosen)

    def set_max_retries(self, max_retries: int) -> PostgresSinkBuilder:
        """Choose how often an absent server is asked again; 10 take about half a minute."""
        return self._with(max_retries=given_count("set_max_retries", max_retries))

    def set_answer_timeout(self, timeout: Duration) -> PostgresSinkBuilder:
        """Choose how long the server may be silent in the middle of something; two minutes.

        Then its connection counts as broken. It must be longer than any single statement may take,
        with the 30 seconds it may wait for a lock; a COPY is not silent while it goes on.
        """
        needed = "a Duration above 0, such as Duration.of_minutes(5)"
        given = given_one("set_answer_timeout", Duration, needed, timeout)
        if given.nanos <= 0:
            message = f"set_answer_timeout() needs {needed}; got {timeout!r}"
            raise InvalidJobError(message)
        return self._with(answer_timeout=given.nanos / 1e9)

    def set_schema_of_books(self, schema: str) -> PostgresSinkBuilder:
        """Choose where the sink has its own two tables; ``penstock`` by default."""
        return self._with(schema_of_books=given_text("set_schema_of_books", schema))

    def build(self) -> PostgresSink:
        """Make the sink; nothing is connected yet.

        Raises:
            InvalidJobError: if something is missing, or does not go together.
        """
        settings = self._settings
        if settings.dsn is None or not settings.table:
            message = "a PostgresSink needs set_dsn() and set_table()"
            raise InvalidJobError(message)
        try:
            settings.dsn.parameters()
        except ValueError as error:
            raise InvalidJobError(str(error)) from None
        _check_columns(settings)
        guarantee = settings.guarantee
        if guarantee is None:
            guarantee = (
                DeliveryGuarantee.AT_LEAST_ONCE if settings.keys else DeliveryGuarantee.EXACTLY_ONCE
            )
        if settings.keys and guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            message = (
                "a PostgresSink with key columns writes with every micro-batch, which repeats "
                "without harm: leave out set_delivery_guarantee(EXACTLY_ONCE), or the keys"
            )
            raise InvalidJobError(message)
        return PostgresSink(replace(settings, guarantee=guarantee))

    def _with(self, **changes: object) -> PostgresSinkBuilder:
        self._settings = replace(self._settings, **changes)  # type: ignore[arg-type]
        return self


def _check_columns(settings: _Settings) -> None:
    columns = settings.columns
    if columns is None:
        return
    for name in (*settings.keys, *sorted(settings.json_columns)):
        if name not in columns:
            message = f"column {name!r} is not one of set_columns({', '.join(columns)})"
            raise InvalidJobError(message)
