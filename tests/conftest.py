"""What all tiers share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import settings

from penstock.errors import MissingServerError
from penstock.testing.servers.hdfs_server import HdfsServer
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.nats_server import NatsServer
from penstock.testing.servers.postgres_server import PostgresServer
from penstock.testing.servers.s3_server import S3Server
from penstock.testing.servers.server_process import ServerProcess

# Enough to find what is there to find, few enough for tests that take seconds.
settings.register_profile("quick", max_examples=15, deadline=None)
settings.load_profile("quick")

Made = TypeVar("Made")
Server = TypeVar("Server", bound=ServerProcess)
_started: list[ServerProcess] = []


def pytest_configure() -> None:
    """Prepare this process, and what its children inherit.

    JVMs of tests live for seconds, and would spend a third of their time on getting faster. A
    process that was started in the background is deaf to what asks it to end: hear it.
    """
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the quick tests first: a broken unit should not wait for a JVM.

    Of those on Spark the ones with Kafka come first: only a JVM that is started with Spark's Kafka
    reader has it.
    """
    tier = {
        "crash": 3,
        "spark": 2,
        "kafka": 1,
        "postgres": 1,
        "nats": 1,
        "s3": 1,
        "hdfs": 1,
        "flink": 1,
        "prometheus": 1,
    }

    def place(item: pytest.Item) -> tuple[int, bool]:
        names = {mark.name for mark in item.iter_markers()}
        number = max((tier.get(name, 0) for name in names), default=0)
        return number, number == 2 and "kafka" not in names

    items.sort(key=place)


def must_be_here() -> bool:
    """Tell whether what a machine has not is a failure here, and no skip."""
    return bool(os.environ.get("PENSTOCK_REQUIRE_SERVERS"))


def made_or_skipped(make: Callable[[], Made]) -> Made:
    """Make something that this machine may not have: skip then, or fail where it is required."""
    try:
        return make()
    except MissingServerError as missing:
        if must_be_here():
            raise
        pytest.skip(str(missing))


def _serve(make: Callable[[], Server]) -> Iterator[Server]:
    """Start a server for all tests of this process, when the first one asks for it."""
    with made_or_skipped(make) as server:
        _started.append(server)
        yield server
        _started.remove(server)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    yield from _serve(KafkaBroker)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    yield from _serve(PostgresServer)


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    yield from _serve(NatsServer)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    yield from _serve(S3Server)


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsServer]:
    yield from _serve(HdfsServer)


@pytest.fixture(autouse=True)
def _servers_are_up_again() -> None:
    """Give every test running servers, whatever the test before did to them."""
    for server in _started:
        server.resume()
        server.start()
