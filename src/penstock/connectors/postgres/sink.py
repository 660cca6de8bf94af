"""Sink that writes rows to a PostgreSQL table, and its builder."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

from penstock.common.time import Duration
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.contracts.committer import Committer, CommitterContext
from penstock.connectors.contracts.sink import (
    DeliveryGuarantee,
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.postgres.database import Connection, Database, Dsn
from penstock.connectors.postgres.direct_publisher import DirectPublisher
from penstock.connectors.postgres.names import SinkIdentity
from penstock.connectors.postgres.rows.writer import PostgresWriter, RowLayout
from penstock.connectors.postgres.table import Table, describe_table
from penstock.connectors.postgres.transactions.committer import PostgresCommitter
from penstock.connectors.postgres.transactions.fencing import fence_older_attempts
from penstock.connectors.postgres.transactions.ledger import CommitLedger
from penstock.connectors.postgres.transactions.prepared import roll_back_prepared
from penstock.connectors.postgres.transactions.publisher import PostgresPublisher
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import InvalidJobError, PostgresSetupError

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
    response_timeout: float = 120.0
    ledger_schema: str = "penstock"

    @property
    def exactly_once(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE


class PostgresSink(Sink):
    """Writes rows to a table: exactly once with checkpoints, or as upserts with micro-batches.

    Exactly once, the rows of a checkpoint are prepared (PREPARE TRANSACTION) at its barrier and
    become visible when it is complete. With ``set_key_columns`` a row replaces the one with the
    same key, so that repeated rows of a restored job change nothing in the end.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def __repr__(self) -> str:
        return f"PostgresSink({self._settings.table})"

    @staticmethod
    def builder() -> PostgresSinkBuilder:
        """Return a builder; it needs a dsn and a table."""
        return PostgresSinkBuilder()

    def writer(self, context: WriterContext) -> SinkWriter:
        settings = self._settings
        layout = RowLayout(
            settings.table, settings.columns, settings.json_columns, deletes=bool(settings.keys)
        )
        return PostgresWriter(layout, context)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        settings = self._settings
        database, ledger = self._fenced_database(context)
        check_table = partial(self._checked_table, database, context.parallelism)
        table = database.run("reading the table's catalog entry", "look", check_table)
        if not settings.exactly_once:
            staging = StagingDirectory(context.work_dir, context.attempt)
            staging.sweep([])
            return DirectPublisher(database, ledger, table, settings.keys, staging)
        # Older attempts may have prepared rows that this one writes again. Everything restored is
        # committed by now. The sweep does the same, but not while a snapshot cannot be read.
        roll_back = partial(roll_back_prepared, database, below=database.identity.number)
        database.run("rolling back older attempts", "clear", roll_back)
        staging = StagingDirectory(context.work_dir, context.attempt, store=context.store)
        return PostgresPublisher(database, ledger, table, staging, two_phase=settings.two_phase)

    def committer(self, context: CommitterContext) -> Committer | None:
        if not self._settings.exactly_once:
            return None
        database, ledger = self._fenced_database(context)
        staging = StagingDirectory(
            context.work_dir,
            context.attempt,
            store=context.store,
            options=context.storage_options,
        )
        return PostgresCommitter(database, ledger, staging, self._settings.table)

    def _fenced_database(
        self, context: PublisherContext | CommitterContext
    ) -> tuple[Database, CommitLedger]:
        settings, step = self._settings, context.work_dir.name
        assert settings.dsn is not None
        identity = SinkIdentity(context.job, context.job_instance, step, context.attempt)
        timeout = settings.response_timeout
        database = Database(settings.dsn, identity, settings.max_retries, timeout)
        ledger = CommitLedger(identity, settings.ledger_schema)
        fence_older_attempts(database, ledger)
        return database, ledger

    def _checked_table(self, database: Database, parallelism: int, connection: Connection) -> Table:
        settings = self._settings
        if settings.exactly_once and settings.two_phase:
            _check_prepared_transactions(connection, database, parallelism)
        table = describe_table(connection, settings.table)
        if settings.columns is not None:
            table.check_columns(settings.columns)
        table.check_known(sorted(settings.json_columns))
        if settings.keys:
            table.check_keys(settings.keys)
        return table


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
        reason = "max_prepared_transactions is 0, but rows are prepared at a barrier"
        raise PostgresSetupError(repr(database), reason, remedy)
    if limit < 2 * parallelism:
        logger.warning(
            "%s: max_prepared_transactions is %d, less than twice the sink's parallelism (%d): "
            "the pre-commits of two checkpoints may have to wait for each other",
            database,
            limit,
            parallelism,
        )


class PostgresSinkBuilder:
    """Builds a :class:`PostgresSink`."""

    def __init__(self) -> None:
        self._settings = _Settings()

    def set_dsn(self, dsn: str) -> PostgresSinkBuilder:
        """Set the database, as for libpq: ``host=db dbname=shop`` or ``postgresql://db/shop``.

        Prefer ``PGPASSWORD`` or ``~/.pgpass`` on the driver to a password in the dsn.
        """
        # The value is not shown: it may contain a password.
        shown = f"an object of class {type(dsn).__name__}"
        _check("set_dsn", isinstance(dsn, str), "a string such as 'host=db dbname=shop'", shown)
        return self._with(dsn=Dsn(dsn))

    def set_table(self, table: str) -> PostgresSinkBuilder:
        """Set the table, ``table`` or ``schema.table``; names are case-sensitive."""
        _check("set_table", _is_text(table), "a non-empty string", repr(table))
        return self._with(table=table)

    def set_columns(self, *columns: str) -> PostgresSinkBuilder:
        """Set the columns to write; by default the fields of the row type, else all in order."""
        return self._with(columns=_names("set_columns", columns))

    def set_key_columns(self, *columns: str) -> PostgresSinkBuilder:
        """Upsert: a row replaces the one with the same values in these columns."""
        return self._with(keys=_names("set_key_columns", columns))

    def set_json_columns(self, *columns: str) -> PostgresSinkBuilder:
        """Write the values of these columns as JSON; in other columns lists become arrays."""
        return self._with(json_columns=frozenset(_names("set_json_columns", columns)))

    def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> PostgresSinkBuilder:
        """Set EXACTLY_ONCE (the default without keys) or AT_LEAST_ONCE."""
        expected = "a DeliveryGuarantee, such as DeliveryGuarantee.AT_LEAST_ONCE"
        is_valid = isinstance(guarantee, DeliveryGuarantee)
        _check("set_delivery_guarantee", is_valid, expected, repr(guarantee))
        return self._with(guarantee=guarantee)

    def set_two_phase(self, two_phase: bool) -> PostgresSinkBuilder:
        """Set whether rows are prepared in the database at the barrier; the default is True.

        Otherwise they wait in files and are loaded when the checkpoint is complete: for servers
        with ``max_prepared_transactions = 0``.
        """
        _check("set_two_phase", isinstance(two_phase, bool), "True or False", repr(two_phase))
        return self._with(two_phase=two_phase)

    def set_max_retries(self, max_retries: int) -> PostgresSinkBuilder:
        """Set how often an unreachable server is retried; 10 retries take about half a minute."""
        is_valid = type(max_retries) is int and max_retries >= 0
        _check("set_max_retries", is_valid, "a whole number, 0 or more", repr(max_retries))
        return self._with(max_retries=max_retries)

    def set_response_timeout(self, timeout: Duration) -> PostgresSinkBuilder:
        """Set how long the server may be silent during a statement; two minutes by default.

        Then its connection counts as broken. Set it longer than any single statement takes,
        including up to 30 seconds for a lock; a COPY that makes progress is never silent.
        """
        is_valid = isinstance(timeout, Duration) and timeout.nanos > 0
        expected = "a Duration above 0, such as Duration.of_minutes(5)"
        _check("set_response_timeout", is_valid, expected, repr(timeout))
        return self._with(response_timeout=timeout.nanos / 1e9)

    def set_ledger_schema(self, schema: str) -> PostgresSinkBuilder:
        """Set the schema of the sink's own two tables; ``penstock`` by default."""
        _check("set_ledger_schema", _is_text(schema), "a non-empty string", repr(schema))
        return self._with(ledger_schema=schema)

    def build(self) -> PostgresSink:
        """Build the sink; it does not connect yet.

        Raises:
            InvalidJobError: if a setting is missing, or two contradict each other.
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
        message = (
            "a PostgresSink with key columns upserts with every micro-batch, which is "
            "idempotent: remove set_delivery_guarantee(EXACTLY_ONCE), or the key columns"
        )
        require(not (settings.keys and guarantee is DeliveryGuarantee.EXACTLY_ONCE), message)
        return PostgresSink(replace(settings, guarantee=guarantee))

    def _with(self, **changes: object) -> PostgresSinkBuilder:
        self._settings = replace(self._settings, **changes)  # type: ignore[arg-type]
        return self


def _check(method: str, is_valid: bool, expected: str, shown: str) -> None:
    require(is_valid, f"{method}() needs {expected}; got {shown}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _names(method: str, names: tuple[str, ...]) -> tuple[str, ...]:
    is_valid = bool(names) and all(map(_is_text, names)) and len(set(names)) == len(names)
    expected = f"distinct names, as in {method}('id', 'name')"
    _check(method, is_valid, expected, ", ".join(map(repr, names)) or "nothing")
    return names


def _check_columns(settings: _Settings) -> None:
    columns = settings.columns
    if columns is None:
        return
    for name in (*settings.keys, *sorted(settings.json_columns)):
        message = f"column {name!r} is not one of set_columns({', '.join(columns)})"
        require(name in columns, message)
