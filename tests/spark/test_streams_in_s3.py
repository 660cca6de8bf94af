"""Streaming DataFrames as sources of a job in a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.errors import StreamQueryError
from penstock.testing import read_lines
from penstock.testing.servers.s3_server import S3Server
from tests.spark.test_stream_source import (
    PER_FILE,
    environment,
    numbers,
    spark,
    to_files,
    wait_for_output,
    write_files,
)

pytestmark = [pytest.mark.spark, pytest.mark.s3]

__all__ = ["spark"]  # the fixture


def test_a_query_resumes_on_a_new_driver_from_what_checkpoints_have_in_the_store(
    spark: SparkSession,
    s3: S3Server,
    tmp_path: Path,
) -> None:
    s3.create_bucket("streams")
    options = s3.options(retry_timeout="5 s")
    in_s3 = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": str(s3.url("streams", tmp_path.name)),
        **{f"penstock.storage.{name}": value for name, value in options.items()},
    }
    write_files(tmp_path / "in", range(2))
    repaired = tmp_path / "repaired"

    def check_number(n: int) -> int:
        if n == 2 * PER_FILE + 7 and not repaired.exists():
            message = f"{n} is too much"
            raise ValueError(message)
        return n

    check = f.udf(check_number, "long")
    df = numbers(spark, tmp_path / "in").select(check("n").alias("n"))
    env = environment(tmp_path, **in_s3)
    to_files(env, df, tmp_path / "out", bounded=False)
    client = env.execute_async("fails")
    wait_for_output(tmp_path / "out")
    write_files(tmp_path / "in", range(2, 4))
    with pytest.raises(StreamQueryError, match="is too much"):
        client.get_job_execution_result().result()
    repaired.touch()
    again = environment(tmp_path, **in_s3)
    to_files(again, df, tmp_path / "out", bounded=True)
    again.execute("fails")
    assert sorted(map(int, read_lines(tmp_path / "out"))) == list(range(4 * PER_FILE))
