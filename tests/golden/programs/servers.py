"""Jobs into Kafka and PostgreSQL, and what they leave there: kept beside the golden directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.testing import Burst, Idle, Pause, ScriptedSource
from tests.golden.programs.running import Run

NUMBERS, CUT, FIRST = 300, 200, 90
TABLE = "CREATE TABLE numbers (number bigint NOT NULL, text text)"
LEFT = "left.json"
"""The file that says what was left on the server."""


class LeftInKafka(msgspec.Struct, frozen=True):
    """What a job has published, and the offset that is its marker."""

    topic: str
    values: list[str]
    group: str
    offset: int
    metadata: str


class LeftInPostgres(msgspec.Struct, frozen=True):
    """What a job has written, and its books: how they were made, and their rows."""

    numbers: list[int]
    definitions: list[str]
    fence: list[tuple[str, str, str, int]]
    ledger: list[tuple[str, str, int, int]]


def numbers(env: StreamExecutionEnvironment, run: Run) -> DataStream:
    script = run.script(range(NUMBERS), CUT)
    if not run.more:
        # Time enough for the first checkpoint to be committed before the next one is taken.
        script = [Burst(range(FIRST)), Pause(1.5), Burst(range(FIRST, CUT)), Idle()]
    source = ScriptedSource({"numbers": script}, Types.LONG())
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").set_parallelism(1)


def topic_of(run: Run) -> str:
    return f"golden-{run.directory.name}"


def to_kafka(run: Run) -> StreamExecutionEnvironment:
    """Publish numbers exactly once; it needs a server called ``kafka``."""
    env = run.environment("to-kafka")
    values = SimpleStringSchema()
    serializer = KafkaRecordSerializationSchema.builder().set_topic(topic_of(run))
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(run.servers["kafka"])
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("golden")
        .set_record_serializer(serializer.set_value_serialization_schema(values).build())
        .build()
    )
    numbers(env, run).map(str, Types.STRING()).sink_to(sink)
    return env


def to_postgres(run: Run) -> StreamExecutionEnvironment:
    """Write rows exactly once; it needs a server called ``postgres``."""
    env = run.environment("to-postgres")
    two_phase = "prepared" in run.directory.name
    sink = (
        PostgresSink.builder()
        .set_dsn(run.servers["postgres"])
        .set_table("numbers")
        .set_two_phase(two_phase)
        .build()
    )
    pair = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])
    numbers(env, run).map(lambda n: Row(n, f"number {n}"), pair).sink_to(sink)
    return env


def values_in_kafka(bootstrap: str, topic: str) -> list[str]:
    """Read what is published."""
    from tests.servers.kafka_sink_case import committed_records

    return [value.decode() for _, value in committed_records(bootstrap, topic)]


def keep_kafka(bootstrap: str, topic: str, group: str, path: Path) -> None:
    """Write down what a job has left in a broker."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (marker,) = consumer.committed([TopicPartition(topic, 0)], 10)
    consumer.close()
    published = values_in_kafka(bootstrap, topic)
    left = LeftInKafka(topic, published, group, marker.offset, marker.metadata or "")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(left)))


def seed_kafka(bootstrap: str, left: LeftInKafka) -> None:
    """Put what a job has left in a broker into another one, where the topic is empty."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap})
    for value in left.values:
        producer.produce(left.topic, value.encode())
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": left.group})
    place = TopicPartition(left.topic, 0, left.offset, left.metadata)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def run_sql(dsn: str, statement: str, *rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run a statement, once or for each row."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        if rows:
            connection.cursor().executemany(statement, rows)
            return []
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def numbers_in_postgres(dsn: str) -> list[int]:
    """Read what is committed."""
    rows = run_sql(dsn, "SELECT number, text FROM numbers ORDER BY number")
    assert all(text == f"number {number}" for number, text in rows)
    return [number for number, _ in rows]


def keep_postgres(dsn: str, definitions: Iterable[str], path: Path) -> None:
    """Write down what a job has left in a database."""
    left = LeftInPostgres(
        numbers_in_postgres(dsn),
        list(definitions),
        [(a, b, c, d) for a, b, c, d in run_sql(dsn, f"{_SELECT_FENCE} ORDER BY 1")],
        [(a, b, c, d) for a, b, c, d in run_sql(dsn, f"{_SELECT_LEDGER} ORDER BY 1")],
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(left)))


_SELECT_FENCE = "SELECT sink, job, step, attempt FROM penstock.penstock_fence"
_SELECT_LEDGER = "SELECT gid, sink, attempt, row_count FROM penstock.penstock_ledger"


def seed_postgres(dsn: str, left: LeftInPostgres) -> None:
    """Put what a job has left in a database into another one, which is empty."""
    for statement in (TABLE, *left.definitions):
        run_sql(dsn, statement)
    row = "VALUES (%s, %s, %s, %s, now())"
    written = [(number, f"number {number}") for number in left.numbers]
    run_sql(dsn, "INSERT INTO numbers VALUES (%s, %s)", *written)
    run_sql(dsn, f"INSERT INTO penstock.penstock_fence {row}", *left.fence)
    if left.ledger:
        run_sql(dsn, f"INSERT INTO penstock.penstock_ledger {row}", *left.ledger)
