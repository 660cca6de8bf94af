"""Connections to a PostgreSQL server that may restart at any moment."""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from penstock.connectors.postgres.identity import SinkIdentity
from penstock.errors import ConnectorError, PostgresUnreachableError, RuntimeSetupError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Connection", "Database", "Dsn", "driver", "passes", "told"]

logger = logging.getLogger("penstock.connectors.postgres")

T = TypeVar("T")

Connection: TypeAlias = "psycopg.Connection[Any]"

_PASSING_CLASSES = ("08", "40", "53", "57", "58")
"""SQLSTATE classes that a later try may not meet: connection, conflict, resources, restart."""

_HOPELESS = re.compile(
    "authentication failed|no password supplied|no pg_hba.conf entry|permission denied"
    "|(database|role) .* does not exist",
)

_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A host that is gone without a word is given up after half a minute, not after two hours."""

_SETTINGS = (
    "SET lock_timeout = '30s'; SET statement_timeout = 0; "
    "SET client_encoding = 'UTF8'; SET TimeZone = 'UTC'; "
    # A commit that a crash of the server takes back would lose rows whose files are gone.
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)


def driver() -> Any:
    """Import psycopg, or say how to get it."""
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        message = "PostgresSink needs psycopg on the driver: pip install 'penstock[postgres]'"
        raise RuntimeSetupError(message) from error


class Dsn:
    """Where a database is and how to get in; shown without its password.

    It stays in its process: a sink that is sent to tasks takes an empty one along.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __reduce__(self) -> tuple[type[Dsn], tuple[None]]:
        return Dsn, (None,)

    def parameters(self) -> dict[str, Any]:
        """Return libpq's parameters.

        Raises:
            ValueError: if it is no dsn; without repeating it.
        """
        if self._text is None:
            message = "the dsn stays where the sink was built, and is not in copies of it"
            raise ValueError(message)
        psycopg = driver()
        conninfo = importlib.import_module("psycopg.conninfo")
        try:
            return dict(conninfo.conninfo_to_dict(self._text))
        except psycopg.ProgrammingError:
            message = (
                "the dsn is neither like 'host=db dbname=shop user=me' nor like "
                "'postgresql://me@db/shop' (it is not repeated here, it may hold a password)"
            )
            raise ValueError(message) from None

    def __repr__(self) -> str:
        try:
            facts = self.parameters()
        except (ValueError, RuntimeSetupError):
            return "<dsn>"
        place = facts.get("host") or facts.get("hostaddr") or facts.get("service") or "local"
        return f"{place}:{facts.get('port') or 5432}/{facts.get('dbname') or ''}"


def passes(error: BaseException) -> bool:
    """Tell whether what failed may well succeed if it is tried again on a new connection."""
    psycopg = driver()
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return False
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    if error.sqlstate is None:
        return not _HOPELESS.search(str(error))
    return str(error.sqlstate).startswith(_PASSING_CLASSES)


def told(error: BaseException) -> str:
    """Repeat what the server said of an error: its message, and the row it is about."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or diagnosis.message_primary is None:
        return " ".join(str(error).split())
    parts = (diagnosis.message_primary, diagnosis.message_detail, diagnosis.context)
    return "; ".join(" ".join(part.split()) for part in parts if part)


class Database:
    """One database as one attempt's sink uses it."""

    def __init__(self, dsn: Dsn, identity: SinkIdentity, max_retries: int, patience: float) -> None:
        """``patience`` is how many seconds the server may be silent in the middle of something."""
        self._dsn = dsn
        self._patience = patience
        self._max_retries = max_retries
        self._closing = threading.Event()
        self.identity = identity

    def __repr__(self) -> str:
        return repr(self._dsn)

    def connect(self, purpose: str) -> Connection:
        """Open a connection in autocommit mode, once; its name says whose it is."""
        facts = {**_PATIENCE, **self._dsn.parameters()}
        facts["application_name"] = self.identity.application_name(purpose)
        driver()
        # It is a class of the driver's, which only a process that connects needs to have.
        from penstock.connectors.postgres.answering import AnsweringConnection

        connection = AnsweringConnection.connect(autocommit=True, prepare_threshold=None, **facts)
        connection.server, connection.patience = repr(self), self._patience
        try:
            connection.execute(_SETTINGS)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def connected(self, purpose: str) -> Iterator[Connection]:
        """Open a connection for a while, once."""
        connection = self.connect(purpose)
        try:
            yield connection
        finally:
            connection.close()

    def patiently(self, what: str, act: Callable[[int], T]) -> T:
        """Call with the number of the try, 0 first, until it is not the server's absence it meets.

        An error that does not pass by itself is raised as it is. About half a minute of absence
        is survived with the default number of retries, and more of a server that hangs.
        """
        for number in range(self._max_retries + 1):
            try:
                return act(number)
            except ConnectorError:
                raise
            except Exception as error:
                if not passes(error):
                    if getattr(error, "sqlstate", "") is None:
                        raise PostgresUnreachableError(repr(self), told(error)) from error
                    raise
                if number == self._max_retries or self._closing.is_set():
                    raise PostgresUnreachableError(repr(self), told(error)) from error
                logger.warning("%s: %s is tried again: %s", self, what, told(error))
                self._closing.wait(min(0.25 * 2**number, 5.0))
        raise AssertionError

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._closing.set()
