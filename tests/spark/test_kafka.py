"""Kafka read by Spark's own reader: the same records as without Spark, in every kind of job."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.contracts.source import SplitRange
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
)
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.spark.session import open_session
from penstock.testing import read_lines
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@pytest.fixture(scope="module")
def spark(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    local = tmp_path_factory.mktemp("local")
    settings = {"spark.master": "local[2,4]", "spark.local.dir": str(local)}
    session = open_session({**settings, "spark.jars": connector_jars()})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def topic(kafka: KafkaBroker) -> str:
    """Three partitions written in transactions, every other one aborted."""
    name = kafka.create_topic(f"spark-{uuid.uuid4().hex[:8]}", 3)
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0}
    client = Producer(settings)
    client.init_transactions(20)
    for number in range(6):
        client.begin_transaction()
        for n in range(200):
            client.produce(
                name,
                f'{{"id":{number * 200 + n}}}'.encode(),
                key=str(n).encode() if n % 5 else None,
                partition=n % 3,
                timestamp=1_000 + n,
                headers=[("h", b"x")] if n % 2 else None,
            )
        client.flush()
        if number % 2:
            client.abort_transaction(20)
        else:
            client.commit_transaction(20)
    return name


def source(kafka: KafkaBroker, topic: str) -> KafkaSourceBuilder:
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_topics(topic)
        .set_property("isolation.level", "read_committed")
        .set_bounded(KafkaOffsetsInitializer.latest())
    )


def committed_ids() -> list[int]:
    return [number * 200 + n for number in (0, 2, 4) for n in range(200)]


@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
def test_a_job_reads_every_committed_record_once(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path, exchange: str
) -> None:
    settings = {
        "penstock.exchange": exchange,
        "penstock.micro-batch.initial-records": "400",
        "penstock.micro-batch.max-records": "400",
        "penstock.work-dir": str(tmp_path / "work"),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    order = Types.ROW_NAMED(["id"], [Types.INT()])
    schema = JsonRowDeserializationSchema.builder().type_info(order).build()
    orders = env.from_source(
        source(kafka, topic).set_value_only_deserializer(schema).build(),
        WatermarkStrategy.no_watermarks(),
        "orders",
    )
    texts = orders.map(lambda row: f"order {row.id}", Types.STRING())
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    texts.key_by(lambda text: text[-1]).map(str, Types.STRING()).sink_to(sink)
    env.execute("kafka")
    assert sorted(read_lines(tmp_path / "out")) == sorted(f"order {n}" for n in committed_ids())


def test_spark_and_the_plain_client_read_the_same_rows(
    spark: SparkSession, kafka: KafkaBroker, topic: str
) -> None:
    fields = KafkaRecordDeserializationSchema.fields(*PARTS, key=SimpleStringSchema())
    rows = source(kafka, topic).set_deserializer(fields).build()
    end = 6 * 67 + 6
    ranges = [SplitRange(f"{topic}-{n}", 0, end - 6 * (n == 2)) for n in range(3)]
    plain = [row for part in ranges for row in itertools.chain.from_iterable(rows.read_lists(part))]
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_source(rows, WatermarkStrategy.no_watermarks(), "rows")
    with stream.execute_and_collect() as results:
        found = list(results)

    def place(row: Any) -> tuple[int, int]:
        return row.partition, row.offset

    assert sorted(found, key=place) == sorted(plain, key=place)
    assert len(found) == 600


class Stamped(ProcessFunction[str, Any]):
    def process_element(self, value: str, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timestamp()


class LastOfAll(KeyedProcessFunction[str, Any, Any]):
    """Emits the watermark at the time when the timer of a key fired."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(value[1])
        yield "stamp", *value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", ctx.get_current_key(), timestamp


class TimeInText(TimestampAssigner):
    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return 1_000_000 + int(value[2:]) * 10 + int(value[0]) * 500_000


def timed_by_source(env: StreamExecutionEnvironment, values: KafkaSource) -> DataStream:
    return env.from_source(values, WatermarkStrategy.for_monotonous_timestamps(), "values")


def timed_by_a_later_step(env: StreamExecutionEnvironment, values: KafkaSource) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    texts = env.from_source(values, WatermarkStrategy.no_watermarks(), "values").map(str.strip)
    return texts.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeInText()))


@pytest.mark.parametrize("stream_of", [timed_by_source, timed_by_a_later_step])
def test_records_have_their_timestamps_and_fire_timers(
    spark: SparkSession,
    kafka: KafkaBroker,
    stream_of: Callable[[StreamExecutionEnvironment, KafkaSource], DataStream],
) -> None:
    name = kafka.create_topic(f"times-{uuid.uuid4().hex[:8]}", 2)
    client = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    written = [(f"{n % 2}/{n}", 1_000_000 + n * 10 + n % 2 * 500_000) for n in range(40)]
    for value, at in written:
        client.produce(name, value.encode(), partition=int(value[0]), timestamp=at)
    client.flush()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    values = source(kafka, name).set_value_only_deserializer(SimpleStringSchema()).build()
    stream = stream_of(env, values)
    timed = stream.process(Stamped()).key_by(lambda stamp: stamp[0][0]).process(LastOfAll())
    with timed.execute_and_collect() as results:
        found = list(results)
    assert sorted(found) == sorted(
        [("stamp", value, at) for value, at in written]
        + [("timer", value[0], at) for value, at in written]
    )
