"""Ctrl-C in a program that would run for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
    from penstock.common import Types, WatermarkStrategy
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = DataGeneratorSource(
        lambda n: n, 10**12, RateLimiterStrategy.per_second(2000), Types.LONG()
    )
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").key_by(
        lambda n: 0
    ).reduce(lambda a, b: b).print()
    env.execute("for ever")
"""


def test_ctrl_c_ends_between_micro_batches(tmp_path: Path) -> None:
    program, output = tmp_path / "job.py", tmp_path / "out.txt"
    program.write_text(textwrap.dedent(PROGRAM))
    with output.open("w") as out:
        job = subprocess.Popen(
            [sys.executable, str(program)], stdout=out, stderr=subprocess.PIPE, text=True
        )
        _wait_until(lambda: output.stat().st_size > 0, seconds=120)
        os.kill(job.pid, signal.SIGINT)
        _, said = job.communicate(timeout=60)
    numbers = [int(line) for line in output.read_text().splitlines()]
    assert numbers == list(range(len(numbers))), "every published micro-batch is whole"
    assert "ending after the micro-batches that run now" in said
    assert job.returncode != 0
    assert "py4j" not in said


def _wait_until(condition: object, seconds: float) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing was printed in time"
        time.sleep(0.1)
