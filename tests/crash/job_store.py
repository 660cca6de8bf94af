"""The S3 server that has the checkpoints and savepoints of a killed job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.common.storage_url import Location
from penstock.testing.servers.s3_server import S3Server
from tests.crash.pipeline import BUCKET, Variant

_running: dict[str, S3Server] = {}


@contextmanager
def job_store(variant: Variant) -> Iterator[Variant]:
    """Run a server for one schedule; it keeps objects as files, which tests read and damage.

    Raises:
        MissingServerError: there is no server program.
    """
    with S3Server(Path(variant.directory) / "s3") as server:
        bucket = server.create_bucket(BUCKET)
        _running[str(bucket)] = server
        try:
            yield msgspec.structs.replace(
                variant, store=str(bucket), store_options=dict(server.options())
            )
        finally:
            del _running[str(bucket)]


def server_of(variant: Variant) -> S3Server:
    """Return the running server of a variant."""
    return _running[variant.store]


def on_disk(variant: Variant, location: Location) -> Path:
    """Return where a file or directory is on this machine, also one in the store."""
    if isinstance(location, Path):
        return location
    return Path(variant.store, *location.parts)
