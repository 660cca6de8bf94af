"""Errors of the sink that writes into PostgreSQL."""

from penstock.errors.base import show
from penstock.errors.connectors import ConnectorError


class PostgresUnreachableError(ConnectorError):
    """A PostgreSQL server did not answer, however patiently it was asked."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(server, reason)
        self.server = server
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"no answer from PostgreSQL at {self.server}: {self.reason}; start the server or "
            "correct the dsn, and raise set_max_retries() if it is away for longer"
        )


class PostgresSetupError(ConnectorError):
    """A PostgreSQL server is not set up for what a sink needs of it."""

    def __init__(self, server: str, reason: str, remedy: str) -> None:
        super().__init__(server, reason, remedy)
        self.server = server
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"PostgreSQL at {self.server}: {self.reason}; {self.remedy}"


class UnsuitableTableError(ConnectorError):
    """A table cannot take the rows that a sink has for it."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table = table
        self.reason = reason

    def __str__(self) -> str:
        return f"table {self.table} cannot take the rows: {self.reason}"


class UnwritableValueError(ConnectorError):
    """A value cannot be written into a column of a table; without column it is a whole record."""

    def __init__(self, column: str | None, value: object, reason: str) -> None:
        self.column = column
        self.value = show(value)
        self.reason = reason
        super().__init__(column, self.value, reason)

    def __str__(self) -> str:
        if self.column is None:
            return f"record {self.value} cannot be written: {self.reason}"
        return f"column {self.column!r} cannot take {self.value}: {self.reason}"


class RefusedRowsError(ConnectorError):
    """A PostgreSQL server refuses rows, and would again."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table = table
        self.reason = reason

    def __str__(self) -> str:
        return f"table {self.table} refuses rows: {self.reason}"


class LostPreparedRowsError(ConnectorError):
    """Rows that waited for their commit are neither in the database nor in files any more."""

    def __init__(self, gid: str, table: str, path: str) -> None:
        super().__init__(gid, table, path)
        self.gid = gid
        self.table = table
        self.path = path

    def __str__(self) -> str:
        return (
            f"rows of table {self.table} are lost: there is no prepared transaction {self.gid}, "
            f"the ledger does not say that it was committed, and {self.path} is gone or damaged; "
            "put the file back, or if the rows are in the table (a ledger from a backup, for "
            f"example) insert gid '{self.gid}' into the ledger"
        )
