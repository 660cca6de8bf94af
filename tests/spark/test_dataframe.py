"""Spark DataFrames as sources, and what waits in a channel as a DataFrame."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, Instant, JobClient, Types, WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import InvalidJobError, UnknownChannelError, UserFunctionError
from penstock.spark.session import open_session

pytestmark = pytest.mark.spark

SCHEMA = (
    "name string, small smallint, n int, big bigint, real double, yes boolean, raw binary, "
    "price decimal(10,2), day date, at timestamp, tags array<string>"
)
FULL = (
    "ann",
    7,
    -3,
    2**40,
    0.5,
    True,
    bytearray(b"\x00\xff"),
    Decimal("12.30"),
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30, 1, 5),  # noqa: DTZ001  Spark's are in the session's zone
    ["x", None],
)
EMPTY = ("bob", *[None] * 10)


class Number(KeyedProcessFunction[str, Any, Any]):
    """Numbers the rows of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield ctx.get_current_key(), value.n, count


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2,4]", "spark.sql.session.timeZone": "UTC"})
    yield session
    session.stop()


def environment(parallelism: int) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)


def test_rows_keep_names_types_and_nulls(spark: SparkSession) -> None:
    df = spark.createDataFrame([FULL, EMPTY], SCHEMA)
    rows = environment(1).from_dataframe(df).execute_and_collect(limit=10)
    rows.sort(key=lambda row: row.name)
    full, empty = (row.as_dict() for row in rows)
    assert list(full) == [field.split()[0] for field in SCHEMA.split(", ")]
    assert full.pop("at") == Instant(1709209801, 5_000)
    assert list(full.values()) == [*FULL[:6], b"\x00\xff", *FULL[7:9], FULL[10]]
    assert list(empty.values()) == list(EMPTY)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_keyed_state_works_after_a_dataframe(spark: SparkSession, parallelism: int) -> None:
    df = spark.range(0, 900, numPartitions=7).selectExpr(
        "case when id % 10 = 0 then null else concat('k', id % 10) end as key",
        "cast(id as int) as n",
    )
    stream = environment(parallelism).from_dataframe(df)
    numbered = stream.key_by(lambda row: row.key, Types.STRING()).process(Number())
    got = sorted(numbered.execute_and_collect(limit=1000), key=lambda row: row[1])
    assert [n for _, n, _ in got] == list(range(900))
    for digit in range(10):
        of_key = [count for key, n, count in got if n % 10 == digit]
        assert sorted(of_key) == list(range(1, 91))
        assert {key for key, n, _ in got if n % 10 == digit} == {f"k{digit}" if digit else None}


def test_an_empty_dataframe_ends_the_job(spark: SparkSession) -> None:
    df = spark.createDataFrame([], "key string, n int")
    stream = environment(2).from_dataframe(df)
    keyed = stream.key_by(lambda row: row.key, Types.STRING()).process(Number())
    assert keyed.execute_and_collect(limit=10) == []


def test_a_dataframe_in_batch_mode_gives_one_result_per_key(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "key string, n int")
    env = environment(2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    sums = env.from_dataframe(df).key_by(lambda row: row.key, Types.STRING()).sum("n")
    got = sums.map(lambda row: (row.key, row.n)).execute_and_collect(limit=10)
    assert sorted(got) == [("a", 4), ("b", 2)]


def test_a_dataframe_can_feed_two_branches_in_one_pass(spark: SparkSession) -> None:
    passes = spark.sparkContext.accumulator(0)

    def seen(row: Any) -> Any:
        passes.add(1)
        return row

    df = spark.range(20).rdd.map(seen).toDF("id bigint")
    stream = environment(2).from_dataframe(df)
    evens = stream.filter(lambda row: row.id % 2 == 0)
    odds = stream.filter(lambda row: row.id % 2 == 1)
    got = evens.union(odds).execute_and_collect(limit=100)
    assert sorted(row.id for row in got) == list(range(20))
    assert passes.value == 20


def test_an_error_after_a_dataframe_names_step_and_row(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", 0)], "key string, n int")
    stream = environment(1).from_dataframe(df).map(lambda row: 1 // row.n).name("divide")
    with pytest.raises(UserFunctionError, match=r"step 'divide' failed on record Row\(key='a'"):
        stream.execute_and_collect(limit=1)


def test_a_streaming_dataframe_is_refused(spark: SparkSession) -> None:
    df = spark.readStream.format("rate").load()
    with pytest.raises(InvalidJobError, match="needs a batch DataFrame; this one is streaming"):
        environment(1).from_dataframe(df)


def test_a_channel_is_read_as_a_dataframe_while_the_job_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def wait(pair: tuple[str, int]) -> int:
        while not go.exists():
            time.sleep(0.01)
        return pair[1]

    configuration = Configuration().set_string("penstock.micro-batch.max-records", "100")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    pairs = env.from_source(
        NumberSequenceSource(1, 100), WatermarkStrategy.no_watermarks(), "numbers"
    ).map(lambda n: (f"k{n % 3}", n), Types.TUPLE([Types.STRING(), Types.LONG()]))
    keyed = pairs.name("pairs").key_by(lambda pair: pair[0], Types.STRING())
    keyed.map(wait, Types.LONG()).name("wait").sink_to(DiscardingSink())
    client = env.execute_async("channels")
    try:
        df = client.read_channel(_once_ended(client), spark)
        assert df.schema["value"].dataType.simpleString() == "struct<f0:string,f1:bigint>"
        records = df.where("kind = 'record'")
        sums = records.groupBy("key").sum("value.f1").orderBy("key").collect()
        assert [tuple(row) for row in sums] == [("k0", 1683), ("k1", 1717), ("k2", 1650)]
        assert records.where("key != value.f0").count() == 0
        assert client.read_channel(0, limit=5).count() == 5  # in the active session
        with pytest.raises(UnknownChannelError, match="it has 'pairs -> wait'"):
            client.read_channel("wait -> pairs")
    finally:
        go.touch()
    client.get_job_execution_result().result()
    assert df.where("kind = 'record'").count() == 100  # what was read stays
    assert client.read_channel(0).count() == 0


def _once_ended(client: JobClient) -> str:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        for channel in client.get_channels():
            if channel.has_ended:
                return channel.name
        time.sleep(0.02)
    pytest.fail("the source did not come to its end")
