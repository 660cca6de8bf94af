"""Streaming DataFrames as sources: `from_stream`."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.common import Configuration, Encoder, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.errors import BadCheckpointError, InvalidJobError, StreamQueryError
from penstock.spark.session import open_session
from penstock.testing import read_lines

pytestmark = pytest.mark.spark

PER_FILE = 20


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.master": "local[2,4]", "spark.sql.shuffle.partitions": "2"}
    session = open_session(settings)
    yield session
    session.stop()


def write_files(directory: Path, numbers: range) -> None:
    directory.mkdir(exist_ok=True)
    for number in numbers:
        path = directory / f".{number}.json"
        rows = ({"n": n} for n in range(number * PER_FILE, (number + 1) * PER_FILE))
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        path.rename(directory / f"{number}.json")


def numbers(spark: SparkSession, directory: Path) -> DataFrame:
    read = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    return read.json(str(directory)).dropDuplicates(["n"])


def environment(directory: Path, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            "execution.checkpointing.interval": "100 ms",
            "restart-strategy.type": "none",
            **settings,
        }
    )
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def to_files(env: StreamExecutionEnvironment, df: DataFrame, out: Path, *, bounded: bool) -> None:
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()
    rows = env.from_stream(df, bounded=bounded)
    assert rows.get_type() == Types.ROW_NAMED(["n"], [Types.LONG()])
    keyed = rows.key_by(lambda row: row.n % 3, Types.LONG())
    keyed.map(lambda row: str(row.n), Types.STRING()).sink_to(sink)


def fails_once(flag: Path, at: int) -> Callable[[int], int]:
    def check(n: int) -> int:
        if n == at and not flag.exists():
            flag.touch()
            message = f"{n} is too much"
            raise ValueError(message)
        return n

    return check


def test_a_failed_query_ends_the_attempt_and_resumes_from_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", range(4))
    check = f.udf(fails_once(tmp_path / "failed", 2 * PER_FILE + 7), "long")
    df = numbers(spark, tmp_path / "in").select(check("n").alias("n"))
    restart = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    env = environment(tmp_path, **restart)
    to_files(env, df, tmp_path / "out", bounded=True)
    env.execute("fails once")
    assert (tmp_path / "failed").exists()
    assert sorted(map(int, read_lines(tmp_path / "out"))) == list(range(4 * PER_FILE))


def test_a_failed_query_is_reported_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "in", range(1))
    df = numbers(spark, tmp_path / "in").selectExpr("n DIV (n - 3) AS n")
    env = environment(tmp_path)
    to_files(env, df, tmp_path / "out", bounded=True)
    with pytest.raises(StreamQueryError, match="DIVIDE_BY_ZERO"):
        env.execute("fails")


def wait_for_output(directory: Path) -> None:
    give_up = time.monotonic() + 120
    while not directory.exists() or not read_lines(directory):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_a_savepoint_with_a_query_can_be_moved(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "in", range(2))
    env = environment(tmp_path)
    to_files(env, numbers(spark, tmp_path / "in"), tmp_path / "out", bounded=False)
    client = env.execute_async("stopped")
    wait_for_output(tmp_path / "out")
    savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    moved = Path(savepoint).rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "checkpoints")
    write_files(tmp_path / "in", range(2, 4))
    again = environment(tmp_path, **{"execution.state-recovery.path": str(moved)})
    to_files(again, numbers(spark, tmp_path / "in"), tmp_path / "out", bounded=True)
    again.execute("resumed")
    assert sorted(map(int, read_lines(tmp_path / "out"))) == list(range(4 * PER_FILE))


def test_a_damaged_file_of_the_query_is_found_before_the_query_resumes(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", range(2))
    df = numbers(spark, tmp_path / "in").selectExpr(f"n + 0 DIV (n - {2 * PER_FILE}) AS n")
    env = environment(tmp_path)
    to_files(env, df, tmp_path / "out", bounded=False)
    client = env.execute_async("damaged")
    wait_for_output(tmp_path / "out")
    write_files(tmp_path / "in", range(2, 3))
    with pytest.raises(StreamQueryError, match="DIVIDE_BY_ZERO"):
        client.get_job_execution_result().result()
    kept = list(tmp_path.glob("checkpoints/*/connectors/*/*/snapshots/*/query/offsets/0"))
    assert kept
    for damaged in {path.stat().st_ino: path for path in kept}.values():
        damaged.write_bytes(damaged.read_bytes()[::-1])
    again = environment(tmp_path)
    to_files(again, df, tmp_path / "out", bounded=False)
    with pytest.raises(BadCheckpointError, match="query/offsets/0 cannot be used: its checksum"):
        again.execute("damaged")


def test_a_query_without_append_mode_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path)
    rate = spark.readStream.format("rate").load()
    with pytest.raises(InvalidJobError, match=r"streaming DataFrame.*use from_dataframe\(\)"):
        env.from_stream(spark.range(3))
    with pytest.raises(InvalidJobError, match=r"append mode.*withWatermark\(\)"):
        env.from_stream(rate.groupBy("value").count())
    with pytest.raises(InvalidJobError, match="omit trigger='5 seconds'"):
        env.from_stream(rate, bounded=True, trigger="5 seconds")
