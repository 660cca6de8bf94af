"""Jobs on two hosts that share nothing but a store, while everything is killed.

The workers of a standalone cluster are in network and mount namespaces of their own. Driver and
servers run on a third host, this machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars
from penstock.testing.servers.postgres_server import PostgresServer
from penstock.testing.servers.s3_server import S3Server
from tests.conftest import made_or_skipped
from tests.crash.driver import Driver
from tests.crash.separate_hosts import SeparateHosts, separate_hosts
from tests.crash.separate_program import Shape, expected, line
from tests.crash.standalone import QUICK_JVM, Cluster, standalone_cluster

pytestmark = [
    *(pytest.mark.crash, pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres),
    pytest.mark.s3,
]

PER_PARTITION = 4_000
PARTITIONS = 3
BUCKET = "jobs"


class ReachablePostgres(PostgresServer):
    """Accepts clients on other hosts."""

    def _prepare(self) -> None:
        super()._prepare()
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.0.0.0/8 trust\n")


class Job(Driver):
    """A driver of the job."""

    program = "tests.crash.separate_program"
    forks = False


@dataclass(frozen=True)
class World:
    """Two hosts, a cluster on them, and servers."""

    hosts: SeparateHosts
    cluster: Cluster
    s3: S3Server
    kafka: KafkaBroker
    postgres: PostgresServer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("world")
    with separate_hosts(directory / "hosts") as hosts:
        servers = [
            made_or_skipped(S3Server),
            made_or_skipped(KafkaBroker),
            made_or_skipped(lambda: ReachablePostgres(settings={"listen_addresses": "*"})),
        ]
        try:
            for server in servers:
                server.host = hosts.gateway
                server.start()
            s3, kafka, postgres = servers
            assert isinstance(s3, S3Server)
            assert isinstance(kafka, KafkaBroker)
            assert isinstance(postgres, PostgresServer)
            s3.create_bucket(BUCKET)
            with standalone_cluster(
                directory / "cluster", hosts=hosts.addresses, separate=hosts
            ) as cluster:
                kafka.create_topic("lines", PARTITIONS)
                produce(kafka)
                yield World(hosts, cluster, s3, kafka, postgres)
        finally:
            for server in servers:
                server.close()


def produce(kafka: KafkaBroker) -> None:
    client = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(PER_PARTITION):
        for partition in range(PARTITIONS):
            client.produce("lines", line(number, partition).encode(), partition=partition)
        if number % 1_000 == 0:
            client.flush()
    client.flush()


def paced(records: int) -> dict[str, str]:
    """Return the settings for micro-batches of this size."""
    names = ("max-records", "initial-records")
    return {f"penstock.micro-batch.{name}": str(records) for name in names}


class Run:
    """One job in its own database and its own place in the bucket."""

    def __init__(
        self, world: World, directory: Path, name: str, settings: Mapping[str, str]
    ) -> None:
        self._world = world
        self.place = world.s3.buckets / BUCKET / name
        dsn = world.postgres.create_database(name)
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE counts (word text, n bigint, note text)")
            connection.execute("CREATE TABLE windows (word text, second bigint, n bigint)")
        self.shape = Shape(
            str(directory), world.kafka.bootstrap, "lines", dsn, self._settings(name, settings)
        )

    def _settings(self, name: str, more: Mapping[str, str]) -> dict[str, str]:
        store = {f"penstock.storage.{k}": v for k, v in self._world.s3.options().items()}
        return {
            "spark.master": self._world.cluster.address,
            "spark.driver.host": self._world.hosts.gateway,
            "spark.jars": connector_jars(),
            "spark.cores.max": "4",
            "spark.executor.cores": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.network.timeout": "20s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
            "parallelism.default": "4",
            "execution.checkpointing.dir": f"s3://{BUCKET}/{name}",
            "execution.checkpointing.interval": "500 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "10",
            "restart-strategy.fixed-delay.delay": "200 ms",
            **store,
            **more,
        }

    def checkpoints(self) -> int:
        """The highest id of a completed checkpoint."""
        found = self.place.glob("*/chk-*/_metadata")
        return max((int(path.parent.name[4:]) for path in found), default=0)

    def faults(self) -> list[str]:
        """Say what is wrong with the tables; nothing, if they are exact."""
        words, windows = expected(PER_PARTITION, PARTITIONS)
        with psycopg.connect(self.shape.dsn) as connection:
            counted = Counter(connection.execute("SELECT word, n FROM counts").fetchall())
            seconds = connection.execute("SELECT word, second, n FROM windows").fetchall()
        wanted = Counter((word, n + 1) for word, count in words.items() for n in range(count))
        found = Counter(seconds)
        right = Counter((word, second, n) for (word, second), n in windows.items())
        return [
            *(f"lost {row}" for row in (wanted - counted).elements()),
            *(f"duplicated {row}" for row in (counted - wanted).elements()),
            *(f"lost window {row}" for row in (right - found).elements()),
            *(f"duplicated window {row}" for row in (found - right).elements()),
        ]


def left_over(world: World, run: Run) -> list[Path]:
    """Return what an ended job has left on hosts and for others in the store."""
    state = [
        path for host in world.hosts.addresses for path in world.cluster.local_dir(host).iterdir()
    ]
    return [*state, *run.place.glob("*/relay/*")]


@contextmanager
def running(run: Run) -> Iterator[Job]:
    driver = Job(run.shape)
    try:
        yield driver
    finally:
        driver.kill()


@pytest.mark.parametrize(("exchange", "backend"), [("shuffle", "rocksdb"), ("channel", "hashmap")])
def test_a_job_needs_only_a_bucket_in_common(
    world: World, tmp_path: Path, exchange: str, backend: str
) -> None:
    settings = {"penstock.exchange": exchange, "state.backend.type": backend, **paced(2_000)}
    run = Run(world, tmp_path, f"alone_{exchange}", settings)
    with running(run) as driver:
        assert driver.wait(240) == 0, driver.words()
    assert run.faults() == []
    assert "restarts in" not in driver.words()
    assert left_over(world, run) == []


@pytest.mark.timeout(600)
def test_killed_and_unplugged_hosts_a_killed_store_and_a_killed_driver_change_nothing(
    world: World, tmp_path: Path
) -> None:
    run = Run(world, tmp_path, "killed", {"state.backend.type": "rocksdb", **paced(300)})
    first, second = world.hosts.addresses

    def continues(driver: Job) -> None:
        seen = run.checkpoints()
        assert driver.wait_until(lambda: run.checkpoints() > seen + 1, 180), driver.words()

    with running(run) as driver:
        continues(driver)
        world.cluster.kill_worker(first)
        continues(driver)
        world.cluster.start_workers(first)
        world.s3.kill()
        time.sleep(2)
        world.s3.start()
        continues(driver)
        world.hosts.cut_off(second)
        continues(driver)
        world.hosts.plug_in(second)
        continues(driver)
    with running(run) as driver:
        continues(driver)
        assert driver.wait(300) == 0, driver.words()
    assert run.faults() == []
    assert left_over(world, run) == []
