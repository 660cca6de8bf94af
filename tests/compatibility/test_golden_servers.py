"""What older versions of the code left in brokers and databases is honoured.

The golden directory of a job into a server has a file beside it with what the job left there. It is
put into a real server, and the job goes on: nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.postgres_server import PostgresServer
from tests.compatibility.conftest import Unpack, golden_jobs
from tests.golden.programs import servers
from tests.golden.programs.running import Run

ALL = list(range(servers.NUMBERS))


@pytest.mark.kafka
@pytest.mark.parametrize("golden", golden_jobs("kafka", "kafka-published"))
def test_a_marker_in_kafka_says_what_is_published(
    golden: Path, unpack: Unpack, kafka: KafkaBroker
) -> None:
    run = Run(unpack(golden), more=True, servers={"kafka": kafka.bootstrap})
    left = msgspec.json.decode((golden / servers.LEFT).read_bytes(), type=servers.LeftInKafka)
    assert 0 < len(left.values) <= servers.CUT
    kafka.create_topic(left.topic, 1)
    servers.seed_kafka(kafka.bootstrap, left)
    servers.to_kafka(run).execute("to-kafka")
    published = servers.values_in_kafka(kafka.bootstrap, left.topic)
    assert Counter(map(int, published)) == Counter(ALL)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "golden", golden_jobs("postgres-rows", "postgres-prepared", "postgres-committed")
)
def test_a_ledger_in_postgresql_says_what_is_committed(
    golden: Path, unpack: Unpack, postgres: PostgresServer
) -> None:
    name = f"golden_{golden.parent.name}_{golden.name.replace('-', '_')}"
    dsn = postgres.create_database(name)
    left = msgspec.json.decode((golden / servers.LEFT).read_bytes(), type=servers.LeftInPostgres)
    assert 0 < len(left.numbers) <= servers.CUT
    servers.seed_postgres(dsn, left)
    run = Run(unpack(golden), more=True, servers={"postgres": dsn})
    servers.to_postgres(run).execute("to-postgres")
    assert servers.numbers_in_postgres(dsn) == ALL
