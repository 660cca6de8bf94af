"""Savepoints from DataFrames in S3: written, changed and restored there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import SavepointExistsError
from penstock.spark.session import open_session
from penstock.spark.state import SavepointWriter, event_time_timers, keyed_state
from penstock.testing import run_inline
from penstock.testing.servers.s3_server import S3Server
from tests.spark.test_savepoint_writer import COUNT, Count

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2]"})
    yield session
    session.stop()


def test_a_savepoint_is_written_to_a_store_changed_there_and_restored(
    spark: SparkSession, s3: S3Server
) -> None:
    s3.create_bucket("bootstrap")
    place, options = s3.url("bootstrap"), s3.options()
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "key string, value bigint")
    timers = spark.createDataFrame([("a", 10)], "key string, time bigint")
    text = ValueStateDescriptor("text", Types.STRING())
    states = [keyed_state(COUNT, frame), event_time_timers(timers)]
    writer = SavepointWriter.new_savepoint(spark, storage_options=options)
    writer.with_operator("count", Types.STRING(), states, parallelism=2)
    first = writer.write(f"{place}/first")
    with pytest.raises(SavepointExistsError):
        writer.write(f"{place}/first")
    with SavepointWriter.from_existing_savepoint(spark, first, storage_options=options) as writer:
        writer.transform_state("count", "count", lambda df: df.selectExpr("key", "'x' value"), text)
        second = writer.write(f"{place}/second")
    settings = {f"penstock.storage.{name}": value for name, value in options.items()}
    settings["execution.state-recovery.path"] = second
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    keyed = run_inline(env).from_collection(["a", "b"], Types.STRING()).key_by(str, Types.STRING())
    counted = keyed.process(Count(text), Types.STRING()).uid("count")
    with counted.execute_and_collect() as found:
        assert sorted(found) == ["a 'x' []", "b 'x' []"]
