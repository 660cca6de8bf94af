"""Errors of the PostgreSQL sink."""

from penstock.errors.connectors import BadDataError, ConnectorError


class PostgresUnreachableError(ConnectorError):
    """A PostgreSQL server did not answer, after all retries."""

    server: str
    reason: str
    template = (
        "no answer from PostgreSQL at {server}: {reason}; start the server or correct the dsn, and "
        "raise set_max_retries() if the server is away for longer"
    )


class PostgresSetupError(ConnectorError):
    """A PostgreSQL server is not configured for what a sink needs."""

    server: str
    reason: str
    remedy: str
    template = "PostgreSQL at {server}: {reason}; {remedy}"


class UnsuitableTableError(ConnectorError):
    """A table cannot store the rows of a sink."""

    table: str
    reason: str
    template = "table {table} cannot store the rows: {reason}"


class UnwritableValueError(BadDataError):
    """A value cannot be written into a column; without a column, it is a whole record."""

    column: str | None
    value: object
    reason: str

    def __str__(self) -> str:
        if self.column is None:
            return f"record {self.value} cannot be written: {self.reason}"
        return f"column {self.column!r} cannot store {self.value}: {self.reason}"


class RefusedRowsError(ConnectorError):
    """A PostgreSQL server refuses rows, and would refuse them again."""

    table: str
    reason: str
    template = "table {table} refuses rows: {reason}"


class LostPreparedRowsError(ConnectorError):
    """Rows that waited for their commit are neither in the database nor in files any more."""

    gid: str
    table: str
    path: str
    template = (
        "rows of table {table} are lost: there is no prepared transaction {gid}, the ledger does "
        "not record its commit, and {path} is missing or damaged; put the file back, or if the "
        "rows are in the table (after restoring a ledger from a backup, for example) insert gid "
        "'{gid}' into the ledger"
    )
