"""An archive that is submitted to a server and runs on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.serve.submission.jobs import kill_jobs, serving
from tests.unit.serve.submission.test_programs import zipped

pytestmark = pytest.mark.spark

MAIN = """
from lib.words import shout
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["to be", "or not"], Types.STRING()).map(shout, Types.STRING()).print()
env.execute("shout")
"""
WORDS = """
def shout(line):
    return line.upper()
"""


def test_sparks_workers_import_the_modules_of_an_archive(tmp_path: Path) -> None:
    program = zipped(("main.py", MAIN.encode()), ("lib/words.py", WORDS.encode()))
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false"}
    with serving(tmp_path) as server:
        try:
            job = server.run(program, "shout.zip", flinkConfiguration=settings)
            code, log = server.await_end(job), server.log(job)
        finally:
            kill_jobs(tmp_path)
    assert code == 0, log
    assert "TO BE" in log
    assert "OR NOT" in log
