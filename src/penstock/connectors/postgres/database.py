"""Connections to a PostgreSQL server, with timeouts, retries and error classification."""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from penstock.connectors.postgres.names import SinkIdentity
from penstock.errors import ConnectorError, PostgresUnreachableError, RuntimeSetupError

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger("penstock.connectors.postgres")

T = TypeVar("T")

Connection: TypeAlias = "psycopg.Connection[Any]"

_TRANSIENT_CLASSES = ("08", "40", "53", "57", "58")
"""SQLSTATE classes of transient errors: connection, conflict, resources, restart."""

_PERMANENT = re.compile(
    "authentication failed|no password supplied|no pg_hba.conf entry|permission denied"
    "|(database|role) .* does not exist",
)

_TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A host that vanishes is detected after half a minute, not after two hours."""

_SETTINGS = (
    "SET lock_timeout = '30s'; SET statement_timeout = 0; "
    "SET client_encoding = 'UTF8'; SET TimeZone = 'UTC'; "
    # Staged files are deleted after a commit, so that it must survive a crash of the server.
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)


def driver() -> Any:
    """Import psycopg, or raise an error that names the extra to install."""
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        message = (
            "PostgresSink needs psycopg on the driver: pip install '/path/to/penstock[postgres]'"
        )
        raise RuntimeSetupError(message) from error


class Dsn:
    """The connection string of a database; its repr hides the password.

    A pickled copy is empty: tasks never connect.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __reduce__(self) -> tuple[type[Dsn], tuple[None]]:
        return Dsn, (None,)

    def parameters(self) -> dict[str, Any]:
        """Return libpq's parameters.

        Raises:
            ValueError: if it is not a valid dsn; the message does not repeat it.
        """
        if self._text is None:
            message = "the dsn is only in the sink that was built, not in its copies"
            raise ValueError(message)
        psycopg = driver()
        conninfo = importlib.import_module("psycopg.conninfo")
        try:
            return dict(conninfo.conninfo_to_dict(self._text))
        except psycopg.ProgrammingError:
            message = (
                "the dsn must look like 'host=db dbname=shop user=me' or "
                "'postgresql://me@db/shop' (it is not repeated here: it may contain a password)"
            )
            raise ValueError(message) from None

    def __repr__(self) -> str:
        try:
            parameters = self.parameters()
        except (ValueError, RuntimeSetupError):
            return "<dsn>"
        hosts = (parameters.get(name) for name in ("host", "hostaddr", "service"))
        host = next(filter(None, hosts), "local")
        return f"{host}:{parameters.get('port') or 5432}/{parameters.get('dbname') or ''}"


def is_transient(error: BaseException) -> bool:
    """Return whether a failed operation may succeed on a new connection."""
    psycopg = driver()
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return False
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    if error.sqlstate is None:
        return not _PERMANENT.search(str(error))
    return str(error.sqlstate).startswith(_TRANSIENT_CLASSES)


def server_message(error: BaseException) -> str:
    """Return the server's message of an error, with detail and context."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or diagnosis.message_primary is None:
        return " ".join(str(error).split())
    parts = (diagnosis.message_primary, diagnosis.message_detail, diagnosis.context)
    return "; ".join(" ".join(part.split()) for part in parts if part)


class Database:
    """A database as the sink of one attempt uses it: connections and retries."""

    def __init__(
        self, dsn: Dsn, identity: SinkIdentity, max_retries: int, response_timeout: float
    ) -> None:
        """``response_timeout`` is how many seconds the server may be silent during a statement."""
        self._dsn = dsn
        self._response_timeout = response_timeout
        self._max_retries = max_retries
        self._closing = threading.Event()
        self.identity = identity

    def __repr__(self) -> str:
        return repr(self._dsn)

    def connect(self, purpose: str) -> Connection:
        """Open an autocommit connection without retries; its name identifies sink and attempt."""
        parameters = {**_TIMEOUTS, **self._dsn.parameters()}
        parameters["application_name"] = self.identity.application_name(purpose)
        driver()
        # Imported late: it subclasses psycopg's connection, and tasks may not have psycopg.
        from penstock.connectors.postgres.timeouts import TimeoutConnection

        connection = TimeoutConnection.connect(
            autocommit=True, prepare_threshold=None, **parameters
        )
        connection.server, connection.timeout = repr(self), self._response_timeout
        try:
            connection.execute(_SETTINGS)
        except BaseException:
            connection.close()
            raise
        return connection

    def with_retries(self, what: str, action: Callable[[int], T]) -> T:
        """Call ``action`` with the number of the try, from 0, until the server is reachable.

        Permanent errors are raised unchanged. The default number of retries outlasts about half a
        minute without a server, and longer if the server hangs.
        """
        for number in range(self._max_retries + 1):
            try:
                return action(number)
            except ConnectorError:
                raise
            except Exception as error:
                if not is_transient(error):
                    if getattr(error, "sqlstate", "") is None:
                        raise self._unreachable(error) from error
                    raise
                if number == self._max_retries or self._closing.is_set():
                    raise self._unreachable(error) from error
                logger.warning("%s: %s failed, retrying: %s", self, what, server_message(error))
                self._closing.wait(min(0.25 * 2**number, 5.0))
        raise AssertionError

    def run(self, what: str, purpose: str, action: Callable[[Connection], T]) -> T:
        """Call ``action`` with a new connection, with retries."""

        def try_once(_: int) -> T:
            with closing(self.connect(purpose)) as connection:
                return action(connection)

        return self.with_retries(what, try_once)

    def close(self) -> None:
        """End all waits between retries."""
        self._closing.set()

    def _unreachable(self, error: Exception) -> PostgresUnreachableError:
        return PostgresUnreachableError(repr(self), server_message(error))


class ReusableConnection:
    """A connection that is opened on first use and kept until it is discarded.

    ``on_connect`` sets up a new one; its flag says that another one was discarded before.
    """

    def __init__(
        self, database: Database, purpose: str, on_connect: Callable[[Connection, bool], None]
    ) -> None:
        self._database = database
        self._purpose = purpose
        self._on_connect = on_connect
        self._connection: Connection | None = None
        self._is_replacement = False

    def get(self) -> Connection:
        """Return the connection; opens one if there is none or it is closed."""
        if self._connection is None or self._connection.closed:
            connection = self._database.connect(self._purpose)
            try:
                self._on_connect(connection, self._is_replacement)
            except BaseException:
                connection.close()
                raise
            self._connection, self._is_replacement = connection, False
        return self._connection

    def discard(self) -> None:
        """Close the connection, after an error or at the end."""
        connection, self._connection = self._connection, None
        self._is_replacement = True
        if connection is not None:
            with suppress(Exception):
                connection.close()
