"""Programs that `spark-submit` starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.spark

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
PROGRAM = """
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from pyspark.sql import SparkSession

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
with env.from_collection([1, 2, 3]).key_by(lambda n: n % 2).reduce(
    lambda a, b: a + b
).execute_and_collect() as results:
    print("results", sorted(results))
conf = SparkSession.active().sparkContext.getConf()
for key in ("master", "locality.wait", "python.worker.reuse", "stage.maxConsecutiveAttempts"):
    print(key, conf.get(f"spark.{key}"))
"""


def test_settings_of_spark_submit_win_over_those_of_penstock(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ["--master", "local[2,3]", "--conf", "spark.locality.wait=1s"]
    run = subprocess.run(
        [str(SUBMIT), *options, str(program)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines() == [
        "results [1, 2, 4]",
        "master local[2,3]",
        "locality.wait 1s",
        "python.worker.reuse true",
        "stage.maxConsecutiveAttempts 1",
    ]
