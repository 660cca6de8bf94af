"""Ctrl-C and SIGTERM in a program that would run forever, and what it writes to standard error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.spark.quiet import CONFIGURE_LOGGING, assert_quiet

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
    env.execute("forever")
"""


def test_ctrl_c_ends_between_micro_batches_and_spark_starts_quietly(tmp_path: Path) -> None:
    program, output = tmp_path / "job.py", tmp_path / "out.txt"
    program.write_text(CONFIGURE_LOGGING + textwrap.dedent(PROGRAM))
    with output.open("w") as out:
        job = subprocess.Popen(
            [sys.executable, str(program)], stdout=out, stderr=subprocess.PIPE, text=True
        )
        _wait_until(lambda: output.stat().st_size > 0, seconds=120)
        os.kill(job.pid, signal.SIGINT)
        _, stderr = job.communicate(timeout=60)
    numbers = [int(line) for line in output.read_text().splitlines()]
    assert numbers == list(range(len(numbers))), "every published micro-batch is complete"
    assert "ending after the running micro-batches" in stderr
    assert job.returncode != 0
    assert_quiet(stderr)


def test_a_signal_to_the_whole_process_group_ends_without_a_traceback(tmp_path: Path) -> None:
    program, output = tmp_path / "job.py", tmp_path / "out.txt"
    program.write_text(textwrap.dedent(PROGRAM))
    with output.open("w") as out:
        # As service managers do, and terminals: the JVM gets the signal, too.
        job = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "run", str(program)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _wait_until(lambda: output.stat().st_size > 0, seconds=120)
        os.killpg(job.pid, signal.SIGTERM)
        _, stderr = job.communicate(timeout=60)
    assert "was canceled" in stderr
    assert "Traceback" not in stderr, stderr


def _wait_until(condition: object, seconds: float) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing was printed before the timeout"
        time.sleep(0.1)
