"""A real S3 server: versitygw, which stores objects as files of a directory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from penstock.common.storage_url import StorageUrl
from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory
from penstock.testing.servers.server_process import ServerProcess

_PROGRAM = "versitygw"
_HEALTH = "/healthz"


def s3_binary() -> Path:
    """Return the server program, which `make setup-s3` builds."""
    built = servers_directory() / _PROGRAM
    if os.access(built, os.X_OK):
        return built
    server, remedy = "S3", "run `make setup-s3`"
    raise MissingServerError(server, f"{_PROGRAM} in {built.parent}", remedy)


class S3Server(ServerProcess):
    """S3 on a loopback port; every bucket is a directory below `buckets`.

    An object is the file of the same name in it. A file that is put there by hand is an object, so
    a test can make many of them quickly. Its log has a line for every request. When it starts after
    it was killed, half-written objects are removed: S3 never shows them, this server would.
    """

    name = "S3"

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._binary = s3_binary()
        super().__init__(directory)
        self.buckets = self.directory / "buckets"
        self.access_key = "penstock"
        self.secret_key = "the secret of a test"

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://{self.host}:{self.port}"

    def options(self, endpoint: str | None = None, **settings: str) -> Mapping[str, str]:
        """Return the options of a `StorageUrl`, for this server or for a proxy before it."""
        needed = {
            "endpoint": endpoint or self.endpoint,
            "access-key-id": self.access_key,
            "secret-access-key": self.secret_key,
            "region": "us-east-1",
        }
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        return {f"s3.{name}": value for name, value in (needed | given).items()}

    def url(
        self, bucket: str, path: str = "", *, endpoint: str | None = None, **settings: str
    ) -> StorageUrl:
        """Return a place in a bucket, with what reaches it."""
        return StorageUrl("s3", bucket, (), self.options(endpoint, **settings)) / path

    def create_bucket(self, name: str) -> Path:
        """Create a bucket, if it does not exist, and return its directory."""
        bucket = self.buckets / name
        bucket.mkdir(exist_ok=True)
        return bucket

    def _prepare(self) -> None:
        self.buckets.mkdir(exist_ok=True)

    def _command(self) -> Sequence[str]:
        # What it was replacing when it was killed; it would list them as objects.
        for unfinished in self.buckets.rglob(".*.sgwtmp.*"):
            unfinished.unlink()
        address = ["--port", f"{self.host}:{self.port}", "--health", _HEALTH, "--keep-alive"]
        keys = ["--access", self.access_key, "--secret", self.secret_key]
        return [str(self._binary), *address, *keys, "posix", str(self.buckets)]

    def _answers(self) -> bool:
        connection = HTTPConnection(self.host, self.port, timeout=1.0)
        try:
            connection.request("GET", _HEALTH)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
