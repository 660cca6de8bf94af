"""Rows that were read from a state with a time-to-live expire when they did before."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.common import Duration, Types
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.spark import read_state
from penstock.spark.session import open_session
from penstock.spark.state import SavepointWriter, keyed_state

pytestmark = pytest.mark.spark

FIRST = datetime.datetime(2024, 1, 2, 3, 4, 5, 123000, datetime.UTC)
MOMENTS = [FIRST + datetime.timedelta(hours=n) for n in range(3)]


def expiring(descriptor: StateDescriptor) -> StateDescriptor:
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_days(30)).build())
    return descriptor


LIST = expiring(ListStateDescriptor("s", Types.STRING()))
MAP = expiring(MapStateDescriptor("s", Types.STRING(), Types.LONG()))
VALUE = expiring(ValueStateDescriptor("s", Types.LONG()))
SCHEMAS = {
    LIST: "key long, list_value array<string>, alive_since array<timestamp>",
    MAP: "key long, map_value map<string, long>, alive_since array<timestamp>",
    VALUE: "key long, value long, alive_since timestamp",
}
VALUES = {LIST: ["c", "a", "b"], MAP: {"c": 1, "a": 2, "b": 3}, VALUE: 1}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"})
    yield session
    session.stop()


def writer_of(
    spark: SparkSession, descriptor: StateDescriptor, frame: DataFrame
) -> SavepointWriter:
    states = [keyed_state(descriptor, frame)]
    writer = SavepointWriter.new_savepoint(spark)
    return writer.with_operator("op", Types.LONG(), states, parallelism=1)


def rows_of(spark: SparkSession, path: str) -> list[Any]:
    return sorted(read_state(spark, path).drop("partition_id").collect(), key=str)


@pytest.mark.parametrize("descriptor", [LIST, MAP, VALUE], ids=["list", "map", "value"])
@pytest.mark.parametrize("flatten", ["true", "false"])
def test_what_read_state_returns_is_written_with_its_last_accesses(
    spark: SparkSession, tmp_path: Path, descriptor: StateDescriptor, flatten: str
) -> None:
    since: Any = FIRST if descriptor is VALUE else MOMENTS
    frame = spark.createDataFrame([(1, VALUES[descriptor], since)], SCHEMAS[descriptor])
    first = writer_of(spark, descriptor, frame).write(tmp_path / "first")
    read = read_state(spark, first, flattenCollectionTypes=flatten)
    second = writer_of(spark, descriptor, read).write(tmp_path / "second")
    before = rows_of(spark, first)
    assert rows_of(spark, second) == before
    millis = sorted(row["alive_since"].timestamp() for row in before)
    expected = [FIRST] if descriptor is VALUE else MOMENTS
    assert millis == [one.timestamp() for one in expected]


def test_maps_need_a_last_access_for_each_entry(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, VALUES[MAP], MOMENTS[:2])], SCHEMAS[MAP])
    found = writer_of(spark, MAP, frame).dry_run()
    text = "operator 'op', state 's', column 'alive_since', key 1: []: it has 0 times for 1 value"
    assert found.problems == (text,)


def test_a_last_access_of_no_time_zone_is_a_problem(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 1, FIRST)], SCHEMAS[VALUE])
    local = frame.withColumn("alive_since", frame.alive_since.cast("timestamp_ntz"))
    (problem,) = writer_of(spark, VALUE, local).dry_run().problems
    assert problem.startswith("operator 'op', state 's', column 'alive_since', key 1: ")
    assert problem.endswith(": it has no time zone")


def test_null_stands_for_now(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 1, None)], SCHEMAS[VALUE])
    assert writer_of(spark, VALUE, frame).dry_run().ok
