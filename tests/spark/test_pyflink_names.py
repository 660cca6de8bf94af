"""A program that imports `pyflink`, under `penstock run --pyflink`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.quiet import CONFIGURE_LOGGING, assert_quiet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

JOB = """
import pyflink.common
from pyflink.common import Types
from pyflink.datastream import MapFunction, StreamExecutionEnvironment
from pyflink.datastream import functions as f

class InWorker(MapFunction):
    def map(self, value):
        import os
        from pyflink.common import Row
        from pyflink.datastream.functions import MapFunction as late
        assert late is f.MapFunction and isinstance(self, late)
        assert Row is pyflink.common.Row
        return Row(value, os.getpid() != driver)

import os
driver = os.getpid()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
words = env.from_collection(["a", "b"], Types.STRING()).key_by(lambda word: word)
words.map(InWorker(), Types.ROW([Types.STRING(), Types.BOOLEAN()])).print()
env.execute("words")
"""


def test_functions_import_pyflink_in_workers_and_spark_starts_quietly(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(CONFIGURE_LOGGING + JOB)
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", "--pyflink", str(job)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["+I[a,True]", "+I[b,True]"]
    assert_quiet(done.stderr)
