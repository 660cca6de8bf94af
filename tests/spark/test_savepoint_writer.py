"""Savepoints from DataFrames: jobs that start from them have the state that rows said."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from penstock.checkpoint.storage.origins import origins_of
from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.crash_points import CRASH_AT, CrashPoint
from penstock.datastream import (
    AggregateFunction,
    CheckpointedFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from penstock.datastream.functions import FunctionInitializationContext
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.datastream.window.operation import WINDOW_CONTENTS
from penstock.errors import (
    BadSavepointContentError,
    NotASnapshotError,
    SavepointBeingWrittenError,
    SavepointExistsError,
)
from penstock.savepoint.directory import read_savepoint_metadata
from penstock.snapshots.writing.new_savepoint import writing_to
from penstock.spark.session import open_session
from penstock.spark.state import (
    SavepointWriter,
    broadcast_state,
    event_time_timers,
    keyed_state,
    operator_list_state,
    processing_time_timers,
    union_list_state,
    window_state,
)
from penstock.testing import run_inline

pytestmark = pytest.mark.spark

KEYS = 40
SIZE, BELL = 100, 5_000
COUNT = ValueStateDescriptor("count", Types.LONG())
LAST = ListStateDescriptor("last", Types.INT())
SEEN = MapStateDescriptor("seen", Types.STRING(), Types.DOUBLE())
TOTAL = ReducingStateDescriptor("total", max, Types.LONG())
RAW = RawStateDescriptor("raw")
PAIR = ValueStateDescriptor(
    "pair", Types.ROW_NAMED(["day", "text"], [Types.SQL_DATE(), Types.STRING()])
)
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
STAMPS = ListStateDescriptor("stamps", Types.STRING())
EVERY = ListStateDescriptor("every", Types.LONG())
DAY = datetime.date(2026, 1, 1)


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


MEAN = AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))


def expiring() -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("fresh", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
    return descriptor


class Tell(KeyedProcessFunction[int, int, str]):
    """Says what every state has for a key, and when timers fire."""

    def open(self, runtime_context: RuntimeContext) -> None:
        get = runtime_context
        self.count, self.last = get.get_state(COUNT), get.get_list_state(LAST)
        self.seen, self.total = get.get_map_state(SEEN), get.get_reducing_state(TOTAL)
        self.mean, self.raw = get.get_aggregating_state(MEAN), get.get_raw_state(RAW)
        self.pair, self.fresh = get.get_state(PAIR), get.get_state(expiring())

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        self.mean.add(1)
        facts = (
            self.count.value(), list(self.last.get()), dict(self.seen.items()), self.total.get(),
            self.mean.get(), self.raw.get(), self.fresh.value(),
        )  # fmt: skip
        pair = self.pair.value()
        yield f"{value} {facts} {pair and (pair.day, pair.text)}"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[str]:
        kind = "event" if ctx.time_domain() is TimeDomain.EVENT_TIME else "processing"
        yield f"{kind} {ctx.get_current_key()} {timestamp}"


class Rated(KeyedBroadcastProcessFunction[int, int, int, str]):
    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[str]:
        yield f"rules {value} {dict(ctx.get_broadcast_state(RULES).items())}"

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        raise AssertionError


class Stamp(MapFunction[int, str], CheckpointedFunction):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self._mine, self._all = store.get_list_state(STAMPS), store.get_union_list_state(EVERY)

    def snapshot_state(self, context: Any) -> None:
        pass

    def map(self, value: int) -> str:
        return f"stamps {sorted(self._mine.get())} {list(self._all.get())}"


class _Number(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def program(settings: dict[str, str], parallelism: int, *, on_spark: bool = False) -> list[str]:
    """Run a job with every kind of state; return what it says."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(parallelism)
    build = env if on_spark else run_inline(env)
    with said(build).execute_and_collect("states") as results:
        return sorted(results)


def said(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_collection(list(range(KEYS)), Types.LONG()).uid("numbers")
    timed = numbers.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Number())
    )
    keyed = timed.key_by(lambda n: n, Types.LONG())
    told = keyed.process(Tell(), Types.STRING()).uid("tell")
    summed = (
        keyed.window(TumblingEventTimeWindows(SIZE, 0))
        .reduce(lambda a, b: a + b)
        .uid("sum")
        .map(lambda n: f"window {n}", Types.STRING())
    )
    rules = env.from_collection([], Types.LONG()).uid("rules").broadcast(RULES)
    rated = keyed.connect(rules).process(Rated(), Types.STRING()).uid("rate")
    stamped = timed.filter(lambda n: n == 7).rebalance().map(Stamp(), Types.STRING()).uid("stamp")
    return told.union(summed, rated, stamped)


def facts_of(n: int) -> str:
    facts = (
        n * 3, [n, n + 1], {"a": n / 2, "none": None}, n * n, (10 * n + 1) / 3,
        bytes([n]), n + 7,
    )  # fmt: skip
    return f"{n} {facts} {(DAY + datetime.timedelta(days=n), str(n))}"


def expected() -> list[str]:
    """Compute what the job must say, without any state."""
    lines = [facts_of(n) for n in range(KEYS)]
    lines += [f"event {n} {10_000 + n}" for n in range(0, KEYS, 3)]
    lines += [f"processing {n} {BELL}" for n in range(0, KEYS, 4)]
    # The window [0, 100) of a key has its number, and 1000 from the savepoint.
    lines += [f"window {n + 1000}" for n in range(KEYS)]
    lines += [f"window {500 + n}" for n in range(5)]
    lines += [f"rules {n} {{'a': 1, 'b': None}}" for n in range(KEYS)]
    return sorted(lines)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2]"})
    yield session
    session.stop()


def rows(spark: SparkSession, value: Any, schema: str) -> DataFrame:
    found = [Row(key=n, **value(n)) for n in range(KEYS)]
    return spark.createDataFrame([tuple(row) for row in found], f"key bigint, {schema}")


def whole_writer(spark: SparkSession) -> SavepointWriter:
    """Return a writer of state of every kind."""
    numbered = F.posexplode("list_value").alias("list_position", "list_element")
    lists = rows(spark, lambda n: {"list_value": [n, n + 1]}, "list_value array<bigint>")
    maps = rows(
        spark, lambda n: {"map_value": {"a": n / 2, "none": None}}, "map_value map<string,double>"
    )
    pairs = rows(
        spark,
        lambda n: {"value": (str(n), DAY + datetime.timedelta(days=n))},
        "value struct<text: string, day: date>",
    )
    number = "value bigint"
    states = [
        keyed_state(COUNT, rows(spark, lambda n: {"value": n * 3}, "value int")),
        keyed_state(LAST, lists.select("key", numbered)),
        keyed_state(SEEN, maps),
        keyed_state(TOTAL, rows(spark, lambda n: {"value": n * n}, number)),
        keyed_state(
            MEAN,
            rows(spark, lambda n: {"value": (10 * n, 2)}, "value struct<f0: bigint, f1: bigint>"),
        ),
        keyed_state(RAW, rows(spark, lambda n: {"value": bytes([n])}, "value binary")),
        keyed_state(PAIR, pairs),
        keyed_state(expiring(), rows(spark, lambda n: {"value": n + 7}, number)),
        event_time_timers(
            rows(spark, lambda n: {"time": 10_000 + n}, "time bigint").where("key % 3 = 0")
        ),
        processing_time_timers(
            rows(spark, lambda n: {"time": BELL}, "time bigint").where("key % 4 = 0")
        ),
    ]
    contents = ReducingStateDescriptor(WINDOW_CONTENTS, max, Types.LONG())
    one = rows(
        spark,
        lambda n: {"window_start": 0, "window_end": SIZE, "value": 1000},
        "window_start bigint, window_end bigint, value bigint",
    )
    later = one.where("key < 5").select(
        "key",
        (F.col("window_start") + SIZE).alias("window_start"),
        (F.col("window_end") + SIZE).alias("window_end"),
        (F.col("key") + 500).alias("value"),
    )
    windows = one.union(later)
    ends = windows.withColumn("expiration_timestamp_ms", F.col("window_end") - 1)
    rules = spark.createDataFrame([("a", 1), ("b", None)], "key string, value bigint")
    writer = SavepointWriter.new_savepoint(spark, max_parallelism=200)
    writer.with_operator("tell", Types.LONG(), states, parallelism=3)
    writer.with_operator(
        "sum", Types.LONG(), [window_state(contents, windows), event_time_timers(ends)]
    )
    writer.with_operator("rate", Types.LONG(), [broadcast_state(RULES, rules)])
    stamps = spark.createDataFrame([("x",), ("y",)], "list_element string")
    lists_of_stamp = [operator_list_state(STAMPS, stamps), union_list_state(EVERY, [1, 2, 3])]
    return writer.with_operator("stamp", states=lists_of_stamp, parallelism=2)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    writer = whole_writer(spark)
    return writer.write(tmp_path_factory.mktemp("saved") / "whole")


def settings_of(savepoint: str, backend: str) -> dict[str, str]:
    return {"execution.state-recovery.path": savepoint, "state.backend.type": backend}


@pytest.mark.parametrize(
    ("backend", "parallelism"), [("hashmap", 1), ("rocksdb", 3), ("memory", 2)]
)
def test_a_job_has_the_state_that_rows_said(whole: str, backend: str, parallelism: int) -> None:
    found = program(settings_of(whole, backend), parallelism)
    stamps = [line for line in found if line.startswith("stamps")]
    assert [line for line in found if not line.startswith("stamps")] == expected()
    assert [line.endswith("[1, 2, 3]") for line in stamps] == [True]


def test_a_job_on_spark_has_the_state_that_rows_said(spark: SparkSession, whole: str) -> None:
    found = program(settings_of(whole, "rocksdb"), 2, on_spark=True)
    assert [line for line in found if not line.startswith("stamps")] == expected()


# -- changes ------------------------------------------------------------------------------------


class Count(KeyedProcessFunction[str, str, str]):
    """Counts in a state of any name and type."""

    def __init__(self, descriptor: ValueStateDescriptor, others: tuple[str, ...] = ()) -> None:
        self._descriptor = descriptor
        self._others = others

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(self._descriptor)
        self._more = [
            runtime_context.get_state(ValueStateDescriptor(name, Types.LONG()))
            for name in self._others
        ]

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        yield f"{value} {self._state.value()!r} {[more.value() for more in self._more]}"


def counted(
    savepoint: str, descriptor: ValueStateDescriptor, *others: str, uid: str = "count"
) -> list[str]:
    """Return what a job finds in a state of the keys a and b."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                **settings_of(savepoint, "hashmap"),
                "execution.state-recovery.ignore-unclaimed-state": "true",
            }
        )
    )
    keyed = run_inline(env).from_collection(["a", "b"], Types.STRING()).key_by(str, Types.STRING())
    with (
        keyed.process(Count(descriptor, others), Types.STRING())
        .uid(uid)
        .execute_and_collect() as found
    ):
        return sorted(found)


def small(spark: SparkSession, path: Path) -> str:
    """Write a savepoint with two states of two keys."""
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "key string, value bigint")
    states = [
        keyed_state(COUNT, frame),
        keyed_state(ValueStateDescriptor("b", Types.LONG()), frame),
    ]
    writer = SavepointWriter.new_savepoint(spark)
    writer.with_operator("count", Types.STRING(), states, parallelism=2)
    return writer.with_operator("gone", Types.STRING(), states[:1]).write(path)


def contents(path: str | Path) -> dict[str, int]:
    files = (file for file in Path(path).rglob("*") if file.is_file())
    return {str(file): zlib.crc32(file.read_bytes()) for file in files}


def test_a_savepoint_is_changed_in_many_ways_at_once_and_its_original_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    original = small(spark, tmp_path / "small")
    before = contents(original)
    new = ValueStateDescriptor("text", Types.STRING())
    added = spark.createDataFrame([("a", 7)], "key string, value bigint")
    writer = SavepointWriter.from_existing_savepoint(spark, original)
    writer.transform_state(
        "count",
        "count",
        lambda df: df.select("key", F.concat(F.lit("n"), df.value.value).alias("value")),
        new,
    )
    writer.drop_state("count", "b").remove_operator("gone")
    writer.with_state("count", keyed_state(ValueStateDescriptor("c", Types.LONG()), added))
    writer.change_operator_identifier("count", "counting")
    writer.change_max_parallelism("counting", 16)
    path = writer.write(tmp_path / "changed")
    assert counted(path, new, "c", uid="counting") == ["a 'n1' [7]", "b 'n2' [None]"]
    assert contents(original) == before
    (first, last) = origins_of(read_savepoint_metadata(Path(path)))
    assert first.path == ""
    data = (Path(original) / "_metadata").read_bytes()
    assert (last.path, last.crc, last.checkpoint) == (original, zlib.crc32(data), 1)
    assert "operator 'count' renamed to 'counting'" in last.operations
    (operator,) = read_savepoint_metadata(Path(path)).operators
    assert {file.state for file in operator.savepoint} == {"text", "c"}
    assert operator.max_parallelism == 16


def test_an_operator_gets_other_keys(spark: SparkSession, tmp_path: Path) -> None:
    numbered = spark.createDataFrame([(1, 10), (2, 20)], "key bigint, value bigint")
    original = (
        SavepointWriter.new_savepoint(spark)
        .with_operator("count", Types.LONG(), [keyed_state(COUNT, numbered)])
        .write(tmp_path / "numbered")
    )
    names = spark.createDataFrame([(1, "a"), (2, "b")], "number bigint, name string")

    def renamed(_: str, df: DataFrame) -> DataFrame:
        joined = df.join(names, df.key.value == names.number)
        return joined.select(names.name.alias("key"), "value")

    writer = SavepointWriter.from_existing_savepoint(spark, original)
    path = writer.change_key("count", Types.STRING(), renamed).write(tmp_path / "named")
    assert counted(path, COUNT) == ["a 10 []", "b 20 []"]


def test_a_max_parallelism_that_is_changed_and_changed_back_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    pairs = [("a", 1), ("b", 2), *((str(n), n) for n in range(20))]
    states = [keyed_state(COUNT, spark.createDataFrame(pairs, "key string, value bigint"))]
    original = SavepointWriter.new_savepoint(spark)
    original.with_operator("count", Types.STRING(), states, parallelism=3)
    saved = original.write(tmp_path / "saved")
    writer = SavepointWriter.from_existing_savepoint(spark, saved)
    writer.change_max_parallelism("count", 2).change_max_parallelism("count", 128)
    assert writer.dry_run().ok
    path = writer.write(tmp_path / "changed")
    assert counted(path, COUNT) == ["a 1 []", "b 2 []"]


def untyped(spark: SparkSession, path: Path) -> str:
    """Write a savepoint with keys of no declared type."""
    frame = spark.createDataFrame([(1, 10), (2, 20)], "key bigint, value bigint")
    writer = SavepointWriter.new_savepoint(spark)
    return writer.with_operator("count", None, [keyed_state(COUNT, frame)]).write(path)


def test_keys_without_a_type_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    writer = SavepointWriter.from_existing_savepoint(spark, untyped(spark, tmp_path / "untyped"))
    writer.transform_state("count", "count", lambda df: df.withColumn("value", df.value.value + 1))
    assert writer.dry_run().ok


@pytest.mark.parametrize("key", ["concat(key.value, 'x')", "cast(key.value AS bigint) + 1"])
def test_keys_without_a_type_are_not_changed_by_their_text(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    writer = SavepointWriter.from_existing_savepoint(spark, untyped(spark, tmp_path / "untyped"))
    writer.transform_state("count", "count", lambda df: df.withColumn("key", F.expr(key)))
    found = writer.dry_run().problems
    assert len(found) == 2
    for problem in found:
        assert problem.startswith("operator 'count', state 'count', column 'key', key ")
        assert problem.endswith(
            "it is not the key in 'key_bytes', which is the one that is written: "
            "to give keys another type or value use change_key"
        )


def test_keys_without_a_type_are_not_left_out(spark: SparkSession, tmp_path: Path) -> None:
    writer = SavepointWriter.from_existing_savepoint(spark, untyped(spark, tmp_path / "untyped"))
    writer.transform_state("count", "count", lambda df: df.select("key", "value"))
    (problem,) = writer.dry_run().problems
    assert problem == (
        "operator 'count', state 'count': its keys have no declared type: keep the column "
        "'key_bytes', or give them a type with change_key"
    )


def test_source_positions_say_where_a_source_continues(spark: SparkSession, tmp_path: Path) -> None:
    writer = SavepointWriter.new_savepoint(spark)
    path = writer.with_source_positions("numbers", {"0": 3}).write(tmp_path / "at-3")
    (source,) = read_savepoint_metadata(Path(path)).operators
    assert source.source is not None
    assert source.source.positions == {"0": 3}
    frame = spark.createDataFrame([("0", 5)], "split string, position bigint")
    writer = SavepointWriter.from_existing_savepoint(spark, path)
    changed = writer.with_source_positions("numbers", frame).write(tmp_path / "at-5")
    (source,) = read_savepoint_metadata(Path(changed)).operators
    assert source.source is not None
    assert source.source.positions == {"0": 5}


# -- problems -----------------------------------------------------------------------------------


def test_a_dry_run_names_every_problem(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [("a", "x"), ("b", "2"), (None, "3"), ("c", None), ("d", "4"), ("d", "5")],
        "key string, value string",
    )
    twice = spark.createDataFrame([("a", 1), ("a", 2)], "key string, value bigint")
    writer = SavepointWriter.new_savepoint(spark, max_parallelism=8)
    states = [keyed_state(COUNT, frame), keyed_state(TOTAL, twice), keyed_state(TOTAL, twice)]
    writer.with_operator("count", Types.STRING(), states)
    writer.with_operator("list", Types.LONG(), [keyed_state(LAST, twice.drop("value"))])
    writer.remove_operator("nobody").drop_state("count", "none")
    writer.with_state("count", broadcast_state(RULES, {"a": "x"}))
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    keyed = env.from_collection(["a"], Types.STRING()).key_by(str).process(Count(COUNT))
    keyed.uid("count").print()
    found = writer.dry_run(env)
    assert not found.ok
    for problem in (
        "operator 'count', state 'count', column 'value', key 'a': 'x': it is not of the type LONG",
        "operator 'count', state 'count', column 'key', key None: it is null",
        "operator 'count', state 'count', column 'value', key 'c': None: it is null",
        "operator 'count', state 'total', key 'a': several rows have this key",
        "operator 'count', state 'total': there is a state with this name already",
        "operator 'list', state 'last': there is no column 'list_value' or 'value'; there are: key",
        "operator 'nobody': there is no operator with this uid; there are: 'count', 'list'",
        "operator 'count', state 'none': there is no such state; there are: 'count', 'total'",
        "operator 'count', state 'rules', column 'value', key 'a': 'x': it is not of the type LONG",
    ):
        assert problem in found.problems, found.problems
    assert any("'count': its keys were STRING and are" in one for one in found.problems)
    (uids,) = [one for one in found.problems if one.startswith("operator 'list': ")]
    assert uids.startswith("operator 'list': the program has no operator with this uid; there are:")
    path = tmp_path / "bad"
    with pytest.raises(BadSavepointContentError, match="there is no operator with this uid"):
        writer.write(path)
    assert not (path / "_metadata").exists()


def test_a_dry_run_without_problems_says_what_would_be_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    keyed = env.from_collection(["a"], Types.STRING()).key_by(str, Types.STRING())
    keyed.process(Count(COUNT)).uid("count").print()
    writer = SavepointWriter.from_existing_savepoint(spark, small(spark, tmp_path / "small"))
    writer.remove_operator("gone")
    found = writer.transform_state("count", "b", lambda df: df.where("key.value = 'a'")).dry_run(
        env
    )
    assert found.ok
    assert str(found).splitlines() == [
        "count/b: value state of LONG, 1 entries",
        "count/count: value state of LONG, unchanged",
    ]
    assert found.operations[0] == "operator 'gone' removed"


def test_rows_that_do_not_fit_leave_no_savepoint_and_no_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    twice = spark.createDataFrame([(7, 1), (7, 2)], "key bigint, value bigint")
    writer = SavepointWriter.new_savepoint(spark)
    writer.with_operator("count", Types.LONG(), [keyed_state(COUNT, twice)])
    with pytest.raises(BadSavepointContentError) as raised:
        writer.write(tmp_path / "bad")
    assert str(raised.value).endswith(
        "because of 1 problem:\n- operator 'count', state 'count', key 7: "
        "several rows have this key"
    )
    assert [path for path in (tmp_path / "bad").rglob("*") if path.is_file()] == []


def test_a_savepoint_is_never_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    path = small(spark, tmp_path / "small")
    before = contents(path)
    with pytest.raises(SavepointExistsError, match="has a savepoint already"):
        small(spark, tmp_path / "small")
    assert contents(path) == before
    with writing_to(tmp_path / "busy"), pytest.raises(SavepointBeingWrittenError):
        small(spark, tmp_path / "busy")
    with pytest.raises(NotASnapshotError):
        SavepointWriter.from_existing_savepoint(spark, tmp_path / "busy")


WRITING = """
import sys
from pathlib import Path
from penstock.spark.session import open_session
from tests.spark.test_savepoint_writer import small
small(open_session({"spark.master": "local[2]"}), Path(sys.argv[1]))
"""


def test_a_process_that_is_killed_leaves_no_savepoint_and_the_next_writes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "small"
    killed = subprocess.run(
        [sys.executable, "-c", WRITING, str(place)],
        env={**os.environ, CRASH_AT: CrashPoint.SAVEPOINT_WRITTEN},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert list(place.rglob("*.parquet"))
    with pytest.raises(NotASnapshotError):
        SavepointWriter.from_existing_savepoint(spark, place)
    assert counted(small(spark, place), COUNT, "b") == ["a 1 [1]", "b 2 [2]"]
