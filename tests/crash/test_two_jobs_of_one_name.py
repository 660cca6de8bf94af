"""Two drivers of jobs with one name and one output path, both killed wherever they happen to be."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

RECORDS = 400
KILLS = 2
PROGRAM = f"""
import sys
from pathlib import Path
from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.testing import run_inline

directory, output, pace = *map(Path, sys.argv[1:3]), int(sys.argv[3])
env = StreamExecutionEnvironment.get_execution_environment(
    Configuration.from_dict({{"execution.checkpointing.dir": str(directory / "checkpoints")}})
)
env.set_parallelism(2)
env.enable_checkpointing(20)
tag, limit = directory.name, RateLimiterStrategy.per_second(pace)
source = DataGeneratorSource(lambda n: f"{{tag}} {{n}}", {RECORDS}, limit, Types.STRING())
rows = FileSink.for_row_format(str(output), Encoder.simple_string_encoder())
sink = rows.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").sink_to(sink)
run_inline(env).execute("rows")
"""


class Job:
    """One of the two jobs; its driver is started again whenever it was killed."""

    def __init__(self, directory: Path, output: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self._output = output
        self._driver: subprocess.Popen[bytes] | None = None

    @property
    def checkpoints(self) -> set[str]:
        return {path.name for path in self.directory.glob("checkpoints/*/chk-*")}

    def start(self, pace: int) -> None:
        arguments = [str(self.directory), str(self._output), str(pace)]
        with (self.directory / "log").open("a") as log:
            self._driver = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stderr=log)

    def kill_after(self, before: set[str], seconds: float) -> None:
        """Kill the driver some time after it has begun a new checkpoint."""
        assert self._driver is not None
        end = time.monotonic() + 60
        while self._driver.poll() is None and self.checkpoints <= before:
            assert time.monotonic() < end, (self.directory / "log").read_text()
            time.sleep(0.005)
        time.sleep(seconds)
        self._driver.kill()
        assert self._driver.wait() == -9, (self.directory / "log").read_text()

    def wait(self) -> None:
        assert self._driver is not None
        assert self._driver.wait(120) == 0, (self.directory / "log").read_text()


def test_each_job_ends_with_exactly_its_own_rows(tmp_path: Path) -> None:
    chance = random.Random(13)
    output = tmp_path / "out"
    jobs = [Job(tmp_path / name, output) for name in ("one", "two")]
    for job in jobs:
        job.start(100)
    for _ in range(KILLS):
        for job in jobs:  # the other one runs meanwhile, and is the next to die
            job.kill_after(job.checkpoints, chance.uniform(0, 0.1))
            job.start(100)
    for job in jobs:
        job.kill_after(job.checkpoints, 0)
        job.start(2000)
    for job in jobs:
        job.wait()
    lines = Counter(
        line for path in output.glob("part-*") for line in path.read_text().splitlines()
    )
    assert lines == Counter(f"{name} {n}" for name in ("one", "two") for n in range(RECORDS))
    assert not list(output.glob(".*"))
