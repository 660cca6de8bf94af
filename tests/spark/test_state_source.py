"""State as DataFrames: formats, options, filters and errors on a real session."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.checkpoint.storage.metadata_serializer import encode_metadata
from penstock.common import Instant, Row, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import (
    NotASnapshotError,
    StateOptionError,
    StateReadError,
    UnknownCheckpointError,
    UnknownOperatorError,
)
from penstock.spark import read_state
from penstock.spark.session import open_session
from penstock.spark.state import register
from tests.golden.programs import states
from tests.unit.snapshots.made_snapshots import Made, entries_of, snapshot_of
from tests.unit.snapshots.test_reading import values_of
from tests.unit.spark.state.reads import BOOK, golden

pytestmark = pytest.mark.spark

COUNTS = {key: len(values_of(key)) for key in range(states.KEYS)}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2,4]"})
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


def pairs(frame: DataFrame) -> dict[Any, Any]:
    rows = frame.select("key.value", "value.value").collect()
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize("name", ["hashmap", "rocksdb", "memory", "savepoint"])
def test_snapshots_of_all_formats_have_what_the_input_says(
    spark: SparkSession, jobs: Path, name: str
) -> None:
    path = golden(name, jobs)
    assert pairs(read_state(spark, path, operator=BOOK, state="count")) == COUNTS
    windows = read_state(spark, path, operator="TumblingEventTimeWindows", state="window-contents")
    row = windows.agg(f.count("*"), f.min(f.expr("window_end - window_start"))).first()
    assert row is not None
    assert row[0] > 0
    assert row[1] == states.SIZE


def test_columns_are_those_of_sparks_source_and_then_ours(spark: SparkSession, jobs: Path) -> None:
    def shape(state: str, **options: Any) -> str:
        path = golden("hashmap", jobs)
        frame = read_state(spark, path, operator=BOOK, state=state, **options)
        return str(frame.schema.simpleString())

    assert shape("count") == (
        "struct<key:struct<value:bigint>,value:struct<value:bigint>,partition_id:int,key_group:int>"
    )
    assert shape("seen") == (
        "struct<key:struct<value:bigint>,user_map_key:struct<value:string>,"
        "user_map_value:struct<value:bigint>,partition_id:int,key_group:int>"
    )
    assert shape("last", flattenCollectionTypes=False) == (
        "struct<key:struct<value:bigint>,list_value:array<struct<value:bigint>>,"
        "partition_id:int,key_group:int>"
    )


def test_a_view_in_sql_reads_state(spark: SparkSession, jobs: Path) -> None:
    path = golden("rocksdb", jobs)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW book USING penstock.state "
        f"OPTIONS (path '{path}', OPERATORUID '{BOOK}', stateVarName 'seen')"
    )
    rows = spark.sql("SELECT user_map_key.value, sum(user_map_value.value) FROM book GROUP BY 1")
    assert {row[0]: row[1] for row in rows.collect()} == {
        parity: sum(1 for n in range(states.CUT) if n // states.KEYS % 2 == odd)
        for odd, parity in enumerate(("even", "odd"))
    }


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_on_keys_read_only_their_key_groups(
    spark: SparkSession, jobs: Path, pushed: str
) -> None:
    spark.conf.set(PUSHDOWN, pushed)
    try:
        found = read_state(spark, golden("memory", jobs), operator=BOOK, state="count")
        some = found.where("key.value IN (1, 3) AND value.value > 0")
        assert pairs(some) == {1: COUNTS[1], 3: COUNTS[3]}
        assert pairs(found.where("key.value = 99")) == {}
        # Key 3 is in one key group, and all keys are in two subtasks.
        one = found.where("key.value = 3")
        assert one.rdd.getNumPartitions() == (1 if pushed == "true" else 2)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_keys_are_looked_up(spark: SparkSession, jobs: Path) -> None:
    path = golden("hashmap", jobs)
    found = read_state(spark, path, operator=BOOK, state="count", keys=[3])
    assert found.rdd.getNumPartitions() == 1
    assert pairs(found) == {3: COUNTS[3]}
    timers = read_state(spark, path, operator=BOOK, keys=[3], readRegisteredTimers=True)
    assert {row["key"]["value"] for row in timers.collect()} == {3}


def test_what_changed_between_two_checkpoints(spark: SparkSession, jobs: Path) -> None:
    path = golden("hashmap", jobs)
    start, end = sorted(int(p.name.removeprefix("chk-")) for p in path.glob("chk-*"))[-2:]
    feed = spark.read.format("penstock.state").options(
        readChangeFeed="true", changeStartBatchId=start, operatorUid=BOOK, stateVarName="total"
    )
    rows = feed.load(str(path)).collect()
    assert {row["batch_id"] for row in rows} == {end}
    assert {row["change_type"] for row in rows} == {"update"}
    assert {row["key"]["value"]: row["value"]["value"] for row in rows} == {
        key: sum(values_of(key)) for key in range(states.KEYS)
    }


def test_positions_committables_and_metadata(spark: SparkSession, jobs: Path) -> None:
    path = golden("rocksdb", jobs)
    positions = read_state(spark, path, readSourcePositions=True)
    assert {row["split"]: row["position"] for row in positions.collect()} == {
        "numbers": states.CUT,
        "rules": states.FIRST_RULES,
    }
    assert read_state(spark, path, readPendingCommittables=True).count() > 0
    metadata = spark.read.format("penstock.state-metadata").load(str(path))
    row = metadata.where("stateStoreName = 'seen'").first()
    assert row is not None
    assert row["operator-max-parallelism"] == 128
    assert row["stateType"] == "MAP(STRING, LONG)"


def test_errors_are_ours_before_files_are_read(spark: SparkSession, jobs: Path) -> None:
    path = golden("hashmap", jobs)
    with pytest.raises(NotASnapshotError):
        read_state(spark, jobs / "nothing")
    with pytest.raises(UnknownOperatorError, match=BOOK):
        read_state(spark, path, operator="book")
    with pytest.raises(UnknownCheckpointError):
        read_state(spark, path, operator=BOOK, state="count", checkpoint=99)
    with pytest.raises(StateOptionError, match="readRegisteredTimers"):
        read_state(spark, path, operator=BOOK, state="count", readRegisteredTimers=True)
    with pytest.raises(StateReadError, match=r"no keyed state 'counts'; there are: .*count"):
        read_state(spark, path, operator=BOOK, state="counts")
    reader = spark.read.format("penstock.state").option("operatorId", 0)
    with pytest.raises(AnalysisException, match="operatorUid"):
        reader.load(str(path))


EVERY_TYPE = {
    "text": (Types.STRING(), "a", "a"),
    "flag": (Types.BOOLEAN(), True, True),
    "short": (Types.SHORT(), 7, 7),
    "double": (Types.DOUBLE(), 0.5, 0.5),
    "huge": (Types.BIG_INT(), 2**80, str(2**80)),
    "exact": (Types.BIG_DEC(), Decimal("1.50"), "1.50"),
    "day": (Types.SQL_DATE(), datetime.date(2026, 11, 19), datetime.date(2026, 11, 19)),
    "clock": (Types.SQL_TIME(), datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
    "local": (
        Types.SQL_TIMESTAMP(),
        datetime.datetime(2026, 11, 19, 1, 2, 3, 4),  # noqa: DTZ001
        datetime.datetime(2026, 11, 19, 1, 2, 3, 4),  # noqa: DTZ001
    ),
    "moment": (Types.INSTANT(), Instant(5, 6), (5, 6)),
    "data": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\0\1", b"\0\1"),
    "list": (Types.LIST(Types.LONG()), [1, 2], [1, 2]),
    "array": (Types.OBJECT_ARRAY(Types.STRING()), ["a", None], ["a", None]),
    "map": (Types.MAP(Types.STRING(), Types.LONG()), {"a": 1}, {"a": 1}),
    "pair": (Types.TUPLE([Types.LONG(), Types.STRING()]), (1, "b"), (1, "b")),
    "none": (Types.STRING(), None, None),
}
"""Types of fields, and values as they are stored and as Spark returns them."""


def test_values_of_every_type_come_through(spark: SparkSession, tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(list(EVERY_TYPE), [kind for kind, _, _ in EVERY_TYPE.values()])
    row = Row(**{name: value for name, (_, value, _) in EVERY_TYPE.items()})
    key_type, directory = Types.TUPLE([Types.LONG(), Types.STRING()]), tmp_path / "job" / "chk-1"
    made = {"rows": Made("value state", row_type, {(1, "a"): row, (2, "b"): row})}
    stored = snapshot_of(entries_of(made, key_type), directory, "hashmap", key_type)
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(encode_metadata(stored.metadata))
    found = read_state(spark, directory, keys=[(2, "b")]).select("key", "value.*").first()
    assert found is not None
    assert tuple(found["key"]) == (2, "b")
    for name, (_, _, expected) in EVERY_TYPE.items():
        value = found[name]
        assert (tuple(value) if isinstance(expected, tuple) else value) == expected, name


def test_an_environment_registers_the_formats(
    spark: SparkSession, tmp_path: Path, jobs: Path
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with env.from_collection([1, 2, 3]).execute_and_collect() as results:
        assert sorted(results) == [1, 2, 3]
    session = SparkSession.active()
    metadata = session.read.format("penstock.state-metadata").load(str(golden("memory", jobs)))
    assert metadata.count() > 0
