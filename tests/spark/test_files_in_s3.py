"""Files in S3 that Spark's workers read and write, and what else of the job sees its keys."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.spark.session import open_session
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server
from tests.servers.file_sink_case import finished, leftovers

pytestmark = [pytest.mark.spark, pytest.mark.s3]

FILES, ROWS = 3, 700
ROW = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    local = str(tmp_path_factory.mktemp("local"))
    session = open_session({"spark.master": "local[2,4]", "spark.local.dir": local})
    yield session
    session.stop()


def dies_once(grave: Path) -> Any:
    def step(row: Row) -> Row:
        if row["n"] == FILES * ROWS // 2 and not grave.exists():
            grave.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Row(n=row["n"], text=row["text"].upper())

    return step


def test_parquet_files_are_read_and_written_though_a_worker_dies(
    spark: SparkSession, s3: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    s3.create_bucket("spark")
    place = s3.url("spark", tmp_path.name)
    for number in range(FILES):
        numbers = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})
        pq.write_table(table, data := io.BytesIO(), row_group_size=100)
        storage_at(place).create(f"in/{number}", data.getvalue())
    settings = {
        "execution.checkpointing.dir": str(place / "checkpoints"),
        "execution.checkpointing.interval": "100 ms",
        "penstock.work-dir": str(tmp_path / "work"),
        "penstock.micro-batch.initial-records": "400",
        "penstock.micro-batch.max-records": "400",
        **{f"penstock.storage.{name}": value for name, value in s3.options().items()},
    }
    configuration = Configuration.from_dict(settings)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(ROW), str(place / "in").replace("s3://", "s3a://")
    ).build()
    sink = FileSink.for_bulk_format(str(place / "out"), ParquetBulkWriters.for_row_type(ROW))
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
        .map(dies_once(tmp_path / "grave"), ROW)
        .sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    )
    env.execute("copy")
    assert (tmp_path / "grave").exists()
    written = storage_at(place / "out")
    tables = [pq.read_table(io.BytesIO(written.read(n))) for n in finished(place / "out")]
    rows = pa.concat_tables(tables).sort_by("n").to_pylist()
    assert rows == [{"n": n, "text": f"ROW {n}"} for n in range(FILES * ROWS)]
    assert leftovers(place / "out") == []
    assert s3.secret_key not in caplog.text
    kept = [path for path in (tmp_path / "work").rglob("*") if path.is_file()]
    kept += [path for path in (s3.buckets / "spark" / tmp_path.name).rglob("*") if path.is_file()]
    assert not [path for path in kept if s3.secret_key.encode() in path.read_bytes()]
