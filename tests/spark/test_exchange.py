"""Stages that run together as one Spark job: what comes out, what is left of it, what fails."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks import exchange
from benchmarks.report import markdown_sheet
from pyspark.sql import SparkSession

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import CheckpointListener
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import UserFunctionError
from penstock.graph.regions import Transport
from penstock.spark.session import open_session
from penstock.spark.transport import resolve_transport, shuffle_obstacle
from penstock.testing import Burst, Pause, ScriptedSource, read_lines

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    local = tmp_path_factory.mktemp("local")
    session = open_session({"spark.master": "local[2,4]", "spark.local.dir": str(local)})
    yield session
    session.stop()


def environment(spark: SparkSession, **settings: str) -> StreamExecutionEnvironment:
    settings = {
        "penstock.exchange": "shuffle",
        "penstock.micro-batch.initial-records": "500",
        "penstock.micro-batch.max-records": "500",
        **settings,
    }
    configuration = Configuration.from_dict(settings)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def numbers(env: StreamExecutionEnvironment, count: int) -> Any:
    source = NumberSequenceSource(0, count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


class Numbered(KeyedProcessFunction[Any, Any, Any]):
    """Numbers the records of each key; dies at a chosen record, once."""

    def __init__(self, dies_at: int | None = None, grave: Path | None = None) -> None:
        self._dies_at = dies_at
        self._grave = grave

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == self._dies_at and self._grave is not None and not self._grave.exists():
            self._grave.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), value, count


def test_levels_keep_state_and_order_through_many_micro_batches(spark: SparkSession) -> None:
    env = environment(spark)
    source = numbers(env, 1500).set_parallelism(1)
    first = source.key_by(lambda n: n % 7).process(Numbered())
    both = first.map(lambda r: r[1]).union(source.rescale())
    second = both.key_by(lambda n: n % 5).process(Numbered()).set_parallelism(3)
    with second.execute_and_collect() as results:
        found = list(results)
        reports = results.get_micro_batches()
    assert Counter(value for _, value, _ in found) == Counter(dict.fromkeys(range(1500), 2))
    for key in range(5):
        assert sorted(count for k, _, count in found if k == key) == list(range(1, 601))
    published = {(r.batch, r.published) for r in reports}
    assert len({batch for batch, _ in published}) == len(published) >= 3
    assert len({r.stage for r in reports}) >= 3


def test_a_dataframe_is_read_in_the_same_job(spark: SparkSession) -> None:
    env = environment(spark)
    frame = spark.range(0, 2000, 1, 5).repartition(3)
    counted = env.from_dataframe(frame).map(lambda row: row.id).key_by(lambda n: n % 3)
    found = counted.process(Numbered()).execute_and_collect(limit=5000)
    assert sorted(value for _, value, _ in found) == list(range(2000))


def test_an_error_of_a_function_keeps_its_type(spark: SparkSession) -> None:
    env = environment(spark)
    numbers(env, 100).rebalance().map(lambda n: 1 // (n - 7)).name("divide").key_by(
        lambda n: n
    ).process(Numbered()).sink_to(DiscardingSink())
    with pytest.raises(UserFunctionError, match="step 'divide' failed on record 7"):
        env.execute("broken")


def test_a_killed_worker_and_a_restart_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def fails_once(record: Any) -> str:
        if record[1] == 2500 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            message = "once"
            raise RuntimeError(message)
        return f"{record[0]} {record[2]}"

    env = environment(
        spark,
        **{
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "penstock.checkpoint.records": "1000",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "1 ms",
        },
    )
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    counted = numbers(env, 4000).key_by(lambda n: n % 3).process(Numbered(800, tmp_path / "dead"))
    counted.rebalance().map(fails_once, Types.STRING()).sink_to(sink)
    env.execute("counted")
    assert (tmp_path / "dead").exists()
    assert (tmp_path / "failed").exists()
    expected = [f"{n % 3} {n // 3 + 1}" for n in range(4000)]
    assert sorted(read_lines(tmp_path / "out")) == sorted(expected)


def test_shuffle_files_are_removed(spark: SparkSession) -> None:
    local = Path(spark.conf.get("spark.local.dir") or "")
    # What a DataFrame of another test has shuffled stays until the JVM collects its garbage.
    before = set(local.rglob("shuffle_*.data"))

    def left() -> list[str]:
        return sorted(path.name for path in {*local.rglob("shuffle_*.data")} - before)

    env = environment(spark)
    numbers(env, 5000).key_by(lambda n: n).process(Numbered()).sink_to(DiscardingSink())
    env.execute("many")
    # Spark removes them in a thread of its own.
    end = time.monotonic() + 60
    while left() and time.monotonic() < end:
        time.sleep(0.1)
    assert left() == []


def test_a_session_of_penstock_may_shuffle_and_another_may_not(spark: SparkSession) -> None:
    conf = dict(spark.sparkContext.getConf().getAll())
    assert shuffle_obstacle(conf) is None
    assert resolve_transport(spark, None) is Transport.CHANNEL
    assert resolve_transport(spark, Transport.SHUFFLE) is Transport.SHUFFLE
    del conf["spark.stage.maxConsecutiveAttempts"]
    assert shuffle_obstacle(conf) is not None


def test_the_exchange_benchmark_measures_both(spark: SparkSession, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"rows": 500, "batches": 3, "rounds": 1}
    given = {**sizes, "files": 2, "cache": str(tmp_path)}
    found = exchange.run(**given)
    assert [one["exchange"] for one in found["runs"]] == ["channel", "shuffle"]
    assert all(one["rows"] > 0 and one["micro_batches"] > 1 for one in found["runs"])
    assert "500" in markdown_sheet(exchange.sheet([(given, found)]))


class Notified(Numbered, CheckpointListener):
    """Is notified of checkpoints in micro-batches without input, and closed."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize("way", ["channel", "shuffle"])
def test_a_dataframe_is_read_once_even_if_functions_are_notified_of_checkpoints(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    env = environment(
        spark,
        **{
            "penstock.exchange": way,
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "restart-strategy.type": "none",
        },
    )
    rows = env.from_dataframe(spark.createDataFrame([(n,) for n in range(20)], "n int"))
    numbered = rows.key_by(lambda row: row.n % 3, Types.LONG()).process(Notified())
    numbered.map(str, Types.STRING()).sink_to(
        FileSink.for_row_format(tmp_path / "out", Encoder.simple_string_encoder()).build()
    )
    later = ScriptedSource([Pause(0.5), Burst([1]), Pause(0.5), Burst([2])], Types.LONG())
    env.from_source(later, WatermarkStrategy.no_watermarks(), "later").sink_to(DiscardingSink())
    env.execute()
    assert len(read_lines(tmp_path / "out")) == 20
