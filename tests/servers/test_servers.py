"""The servers themselves: what they promise to the tests that kill them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.errors import ServerNotReadyError
from penstock.testing.servers import process_tree
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.nats_server import NatsServer
from penstock.testing.servers.postgres_server import PostgresServer
from tests.conftest import made_or_skipped
from tests.servers.cutting_proxy import CuttingProxy, Loss
from tests.servers.request_watch import KAFKA_END_TXN, kafka_request, request_with
from tests.servers.small_disk import SmallDisk, small_disk

QUIET = {"log_level": 0}


def producer(address: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": address, **QUIET, **settings})


def committed(address: str, topic: str) -> list[bytes | None]:
    """What a reader of committed records finds in partition 0, up to its end."""
    settings = {"bootstrap.servers": address, "group.id": topic, "enable.partition.eof": True}
    isolation = {"isolation.level": "read_committed", "enable.auto.commit": False}
    reader = Consumer({**settings, **isolation, **QUIET})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    try:
        while (message := reader.poll(60)) is not None and message.error() is None:
            found.append(message.value())
    finally:
        reader.close()
    assert message is not None, "the reader never got to the end"
    return found


def write_in_a_transaction(transactions: Producer, topic: str, value: bytes) -> None:
    transactions.begin_transaction()
    transactions.produce(topic, value)
    transactions.commit_transaction(60)


@pytest.mark.kafka
def test_a_killed_broker_comes_back_with_what_was_committed_a_moment_before(
    kafka: KafkaBroker,
) -> None:
    topic = kafka.create_topic("killed")
    transactions = producer(kafka.bootstrap, **{"transactional.id": "killed"})
    transactions.init_transactions(60)
    address = kafka.bootstrap
    for value in (b"1", b"2"):
        write_in_a_transaction(transactions, topic, value)
        kafka.kill()
        kafka.start()
    assert kafka.bootstrap == address
    assert committed(address, topic) == [b"1", b"2"]


@pytest.mark.kafka
def test_a_paused_broker_does_not_respond_until_it_is_resumed(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic("paused")
    client = producer(kafka.bootstrap)
    client.produce(topic, b"before")
    assert client.flush(60) == 0
    kafka.pause()
    client.produce(topic, b"meanwhile")
    assert client.flush(0.5) == 1
    kafka.resume()
    assert client.flush(60) == 0
    assert committed(kafka.bootstrap, topic) == [b"before", b"meanwhile"]


@pytest.mark.kafka
def test_a_broker_that_does_not_create_a_topic_is_quoted(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.pause()
    monkeypatch.setattr(kafka, "start_timeout_s", 0.0)
    message = r"Kafka does not create topic 'late' \(.+\) after 0 s; the end of its log:\n.*\w"
    with pytest.raises(ServerNotReadyError, match=message):
        kafka.create_topic("late")


@pytest.mark.kafka
def test_a_topic_has_the_settings_it_was_created_with(kafka: KafkaBroker) -> None:
    kafka.create_topic("settings", 3, cleanup_policy="compact")
    with pytest.raises(KafkaException, match="already exists"):
        kafka.create_topic("settings")
    reader = Consumer({"bootstrap.servers": kafka.direct, "group.id": "settings", **QUIET})
    assert len(reader.list_topics("settings", timeout=60).topics["settings"].partitions) == 3
    reader.close()


@pytest.mark.kafka
def test_records_stay_however_old_their_timestamps_are() -> None:
    soon = {"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100"}
    with made_or_skipped(lambda: KafkaBroker(properties=soon)) as broker:
        topic = broker.create_topic("old")
        client = producer(broker.bootstrap)
        client.produce(topic, b"of 1970", timestamp=1_000)
        assert client.flush(60) == 0
        time.sleep(1)
        assert committed(broker.bootstrap, topic) == [b"of 1970"]


@pytest.mark.kafka
def test_a_commit_whose_response_is_lost_is_retried_and_done_once() -> None:
    with (
        CuttingProxy(watching=kafka_request(KAFKA_END_TXN)) as proxy,
        made_or_skipped(lambda: KafkaBroker(advertised=proxy.port)) as broker,
    ):
        proxy.target = broker.port
        topic = broker.create_topic("cut")
        transactions = producer(f"{proxy.host}:{proxy.port}", **{"transactional.id": "cut"})
        transactions.init_transactions(60)
        proxy.cut_at(2)
        write_in_a_transaction(transactions, topic, b"1")
        assert not proxy.await_cut(0)
        write_in_a_transaction(transactions, topic, b"2")
        assert proxy.await_cut(0)
        assert proxy.seen == 3
        assert committed(broker.direct, topic) == [b"1", b"2"]


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with ExitStack() as stack:
        yield made_or_skipped(lambda: stack.enter_context(small_disk(64)))


@pytest.mark.kafka
def test_a_broker_with_a_full_disk_accepts_nothing_and_loses_nothing(disk: SmallDisk) -> None:
    with made_or_skipped(lambda: KafkaBroker(data=disk.path / "data")) as broker:
        topic = broker.create_topic("full")
        client = producer(broker.bootstrap, **{"message.timeout.ms": 2000})
        client.produce(topic, b"1")
        assert client.flush(60) == 0

        disk.fill()
        failures: list[object] = []
        for _ in range(20):
            client.produce(topic, os.urandom(100_000), on_delivery=lambda e, _: failures.append(e))
        client.flush(60)
        assert any(failures)

        broker.kill()
        disk.free()
        broker.start()
        assert committed(broker.bootstrap, topic)[0] == b"1"


@pytest.fixture
def table(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    dsn = postgres.create_database(request.node.name)
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t (n INT)")
    return dsn


def prepare(dsn: str, gid: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute(f"PREPARE TRANSACTION '{gid}'")


def rows(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT count(*) FROM t").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.postgres
def test_a_prepared_transaction_survives_the_kill_of_the_server(
    postgres: PostgresServer, table: str
) -> None:
    prepare(table, "survivor")
    for _ in range(3):
        postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(table, connect_timeout=1)
        postgres.start()
    assert rows(table) == 0
    with psycopg.connect(table, autocommit=True) as connection:
        connection.execute("COMMIT PREPARED 'survivor'")
    postgres.restart()
    assert rows(table) == 1


@pytest.mark.postgres
def test_killing_the_server_leaves_none_of_its_processes(
    postgres: PostgresServer, table: str
) -> None:
    assert postgres.pid is not None
    with psycopg.connect(table):
        members = process_tree.tree(postgres.pid)
        postgres.kill()
    assert len(members) > 3
    assert not any(process_tree.is_alive(member) for member in members)


@pytest.mark.postgres
def test_a_paused_server_does_not_respond_but_keeps_its_connections(
    postgres: PostgresServer, table: str
) -> None:
    with psycopg.connect(table) as connection:
        connection.execute("SELECT 1")
        postgres.pause()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(table, connect_timeout=1)
        postgres.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.postgres
@pytest.mark.parametrize(("loss", "committed_rows"), [(Loss.ANSWER, 1), (Loss.REQUEST, 0)])
def test_a_commit_is_cut_after_or_before_the_server(
    postgres: PostgresServer, table: str, loss: Loss, committed_rows: int
) -> None:
    prepare(table, f"cut-{loss.value}")
    watching = request_with(b"COMMIT PREPARED")
    with CuttingProxy(postgres.port, watching=watching) as proxy:
        through = table.replace(f":{postgres.port}/", f":{proxy.port}/")
        with psycopg.connect(through, autocommit=True) as connection:
            proxy.cut_at(loss=loss)
            connection.execute("SELECT 1")
            with pytest.raises(psycopg.OperationalError):
                connection.execute(f"COMMIT PREPARED 'cut-{loss.value}'")
        assert proxy.await_cut(60)
        assert rows(through) == committed_rows
    with psycopg.connect(table, autocommit=True) as connection:
        left = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
        assert len(left) == 1 - committed_rows
        if left:
            connection.execute(f"ROLLBACK PREPARED '{left[0][0]}'")


@pytest.mark.postgres
def test_a_proxy_refuses_cuts_and_delays(postgres: PostgresServer) -> None:
    with CuttingProxy(postgres.port) as proxy:
        dsn = postgres.dsn(port=proxy.port)
        connection = psycopg.connect(dsn)
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(dsn)
        proxy.pass_through()
        with psycopg.connect(dsn) as connection:
            proxy.delay(0.2)
            begin = time.monotonic()
            connection.execute("SELECT 1")
            assert time.monotonic() - begin >= 0.4
            proxy.cut()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")


@pytest.mark.nats
def test_a_message_on_a_stream_survives_the_kill_of_the_server(nats: NatsServer) -> None:
    async def publish() -> None:
        import nats as client

        connection = await client.connect(nats.url)
        stream = connection.jetstream()
        await stream.add_stream(name="survivor", subjects=["survivor"])
        await stream.publish("survivor", b"here")
        await connection.close()

    async def read() -> bytes:
        import nats as client

        connection = await client.connect(nats.url)
        subscription = await connection.jetstream().pull_subscribe("survivor", "reader")
        (message,) = await subscription.fetch(1, timeout=60)
        await message.ack()
        await connection.close()
        return bytes(message.data)

    asyncio.run(publish())
    nats.kill()
    assert not nats.running
    nats.start()
    assert asyncio.run(read()) == b"here"


@pytest.mark.nats
def test_a_server_that_does_not_start_reports_why(nats: NatsServer) -> None:
    with NatsServer() as other:
        other.stop()
        other.port = nats.port
        with pytest.raises(ServerNotReadyError, match=r"NATS ended with 1(.|\n)*in use"):
            other.start()


@pytest.mark.postgres
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_a_database_that_cannot_be_installed_reports_what_to_do(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    server = PostgresServer(private / "database")
    message = rf"which may not enter {re.escape(str(private))}; set TMPDIR to a directory"
    with pytest.raises(ServerNotReadyError, match=message):
        server.start()


OWNER = """
import sys, time
from penstock.testing.servers.nats_server import NatsServer
server = NatsServer(sys.argv[1]).start()
server.pause()
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.nats
def test_a_server_dies_with_its_owner_even_while_it_is_paused(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert process_tree.is_alive(pid)
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while process_tree.is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not process_tree.is_alive(pid)
