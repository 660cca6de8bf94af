"""A streaming query and keyed state on Spark, with checkpoints and savepoints in S3."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.common import Encoder, Types
from penstock.common.config.locations import parse_location
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.state import ValueStateDescriptor
from penstock.storage.storages import storage_at
from penstock.testing import read_lines
from penstock.testing.servers.s3_server import S3Server
from tests.spark.test_stream_source import (
    PER_FILE,
    environment,
    numbers,
    spark,
    wait_for_output,
    write_files,
)

pytestmark = [pytest.mark.spark, pytest.mark.s3]

__all__ = ["spark"]

KEYS = 3


class Count(KeyedProcessFunction[Any, Any, str]):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{ctx.get_current_key()} {count}"


def count(env: StreamExecutionEnvironment, df: DataFrame, out: Path, *, bounded: bool) -> None:
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()
    keyed = env.from_stream(df, bounded=bounded).uid("q").key_by(lambda r: r.n % KEYS, Types.LONG())
    keyed.process(Count(), Types.STRING()).uid("count").sink_to(sink).uid("out")


def test_a_moved_savepoint_restores_a_query_and_keyed_state(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    s3.create_bucket("spark")
    place = s3.url("spark")
    reach = {f"penstock.storage.{name}": value for name, value in s3.options().items()}
    own = {"execution.checkpointing.dir": str(place / "checkpoints"), **reach}
    write_files(tmp_path / "in", range(2))
    env = environment(tmp_path, **own)
    count(env, numbers(spark, tmp_path / "in"), tmp_path / "out", bounded=False)
    client = env.execute_async("stopped")
    wait_for_output(tmp_path / "out")
    path = client.stop_with_savepoint(False, str(place / "savepoints")).result()
    client.get_job_execution_result().result()
    savepoint = parse_location(path, place.options)
    names = storage_at(savepoint).list("")
    assert any(name.startswith("q/source/query/") for name in names)
    assert any(name.startswith("count/count/part-") for name in names)
    for name in names:
        storage_at(place / "moved").create(name, storage_at(savepoint).read(name))
    storage_at(place).delete_tree("checkpoints")
    storage_at(place).delete_tree("savepoints")
    shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    write_files(tmp_path / "in", range(2, 4))
    again = environment(
        tmp_path, **own, **{"execution.state-recovery.path": str(place / "moved")}
    ).set_parallelism(3)
    count(again, numbers(spark, tmp_path / "in"), tmp_path / "out", bounded=True)
    again.execute("resumed")
    expected = [f"{n % KEYS} {n // KEYS + 1}" for n in range(4 * PER_FILE)]
    assert sorted(read_lines(tmp_path / "out")) == sorted(expected)
