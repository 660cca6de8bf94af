"""Where the job runs: a broker on a small disk and a database, each with a proxy before it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import psycopg

from penstock.errors import MissingServerError
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars
from penstock.testing.servers.postgres_server import PostgresServer
from penstock.testing.servers.server_process import ServerProcess
from tests.crash.orders.events import PARTITIONS
from tests.crash.orders.program import Variant
from tests.servers.cutting_proxy import CuttingProxy
from tests.servers.request_watch import KAFKA_END_TXN, kafka_request, request_with
from tests.servers.small_disk import SmallDisk, small_disk

DISK_MB = 400
TABLE = """
    CREATE TABLE totals (
        customer text NOT NULL,
        n bigint NOT NULL,
        order_id bigint NOT NULL,
        total bigint NOT NULL,
        note text NOT NULL
    )
"""
"""Without a key: rows that come twice must be seen by the verifier, not kept out by the table."""


class Part(StrEnum):
    """A server of the pipeline."""

    BROKER = "broker"
    DATABASE = "database"


class World:
    """Servers of their own, kept for one schedule or for several one after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open = ExitStack()
        self.disk: SmallDisk | None = None
        """Where the broker keeps its data, None if this machine cannot mount a small disk."""
        self.no_disk = ""
        """Why there is none."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def place(self, variant: Variant, name: str, directory: Path, stops: Sequence[int]) -> Variant:
        """Make topics and a table for one run; return the variant that uses them."""
        for topic in ("orders", "totals"):
            self.broker.create_topic(f"{topic}-{name}", PARTITIONS)
        with psycopg.connect(self.database.create_database(name)) as connection:
            connection.execute(TABLE)
        before_broker, before_database = self.proxy(Part.BROKER), self.proxy(Part.DATABASE)
        jars = {"spark.jars": connector_jars()} if variant.spark else {}
        return msgspec.structs.replace(
            variant,
            directory=str(directory),
            bootstrap=f"{before_broker.host}:{before_broker.port}",
            dsn=self.database.dsn(name, port=before_database.port),
            orders=f"orders-{name}",
            totals=f"totals-{name}",
            stops=tuple(stops),
            settings={**variant.settings, **jars},
        )

    def proxy(self, part: Part) -> CuttingProxy:
        """The proxy before a server."""
        return self._proxies[part]

    def server(self, part: Part) -> ServerProcess:
        """The server itself."""
        return self.broker if part is Part.BROKER else self.database

    def _start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self.disk = self._open.enter_context(small_disk(DISK_MB))
        except MissingServerError as error:
            self.no_disk = str(error)
        before_broker = self._open.enter_context(
            CuttingProxy(watching=kafka_request(KAFKA_END_TXN))
        )
        # With and without PREPARED.
        before_database = self._open.enter_context(CuttingProxy(watching=request_with(b"COMMIT")))
        self._proxies = {Part.BROKER: before_broker, Part.DATABASE: before_database}
        self.broker = self._open.enter_context(
            KafkaBroker(
                self._directory / "broker",
                data=None if self.disk is None else self.disk.path / "data",
                advertised=before_broker.port,
            )
        )
        before_broker.target = self.broker.port
        self.database = self._open.enter_context(PostgresServer(self._directory / "database"))
        before_database.target = self.database.port
