"""A real NATS server with JetStream."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory
from penstock.testing.servers.server_process import ServerProcess

_PROGRAM = "nats-server"


def nats_binary() -> Path:
    """Return the server program: the system's, or the one that `make setup-nats` fetched."""
    # Debian installs it in a directory that is not on the PATH of a normal user.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
    fetched = servers_directory() / "nats" / "usr" / "sbin" / _PROGRAM
    if (found := shutil.which(_PROGRAM, path=path)) is not None:
        return Path(found)
    if os.access(fetched, os.X_OK):
        return fetched
    server, remedy = "NATS", "run `make setup-nats`"
    raise MissingServerError(server, f"{_PROGRAM} on PATH or in {fetched.parent}", remedy)


class NatsServer(ServerProcess):
    """NATS on a loopback port, with its streams in files of its own directory."""

    name = "NATS"

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._binary = nats_binary()
        super().__init__(directory)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"nats://{self.host}:{self.port}"

    def _prepare(self) -> None:
        (self.directory / "store").mkdir(exist_ok=True)

    def _command(self) -> Sequence[str]:
        store = str(self.directory / "store")
        address = ["--addr", self.host, "--port", str(self.port)]
        return [str(self._binary), *address, "--jetstream", "--store_dir", store]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as connection:
                connection.settimeout(1.0)
                return connection.recv(4096).startswith(b"INFO ")
        except OSError:
            return False
