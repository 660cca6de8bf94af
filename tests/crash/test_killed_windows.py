"""A windowed job killed at random: each record is in its window, and in it once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from penstock.checkpoint.job_dir import JobDir
from penstock.checkpoint.journal import Journal, JournalState
from penstock.ids import JobKey
from penstock.testing import read_lines
from tests.crash import driver
from tests.crash.windowed import JOB, Shape, faults

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]


class Driver(driver.Driver):
    program = "tests.crash.windowed"


@contextmanager
def started(shape: Shape) -> Iterator[Driver]:
    process = Driver(shape)
    try:
        yield process
    finally:
        process.kill()


def journal_of(shape: Shape) -> JournalState:
    return Journal(JobDir(shape.checkpoints, JobKey(JOB)).storage, JOB).state()


def checkpoints(shape: Shape) -> int:
    return max((c.checkpoint for c in journal_of(shape).completed), default=0)


def has_reached(shape: Shape, checkpoint: int) -> bool:
    return checkpoints(shape) >= checkpoint


def run_and_kill(shape: Shape, rng: random.Random, kills: int) -> None:
    """Start the job again and again, killing it somewhere behind another checkpoint."""
    for _ in range(kills):
        wanted = checkpoints(shape) + 2
        with started(shape) as process:
            if not process.wait_until(partial(has_reached, shape, wanted)):
                assert process.wait() == 0, process.words()
                return
            time.sleep(rng.uniform(0.0, 0.3))
    with started(shape) as last:
        assert last.wait() == 0, last.words()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_windows_of_a_driver_killed_again_and_again_are_exact(tmp_path: Path, backend: str) -> None:
    shape = Shape(str(tmp_path), records=600, per_second=300, backend=backend)
    run_and_kill(shape, random.Random(7), kills=3)
    assert faults(shape.records, read_lines(shape.output)) == []
    assert journal_of(shape).attempts_so_far >= 3


def test_the_judge_finds_what_is_lost_and_what_is_doubled(tmp_path: Path) -> None:
    shape = Shape(str(tmp_path), records=60, per_second=10_000)
    with started(shape) as process:
        assert process.wait() == 0, process.words()
    lines = read_lines(shape.output)
    assert faults(shape.records, lines) == []
    for line in (lines[0], lines[-1]):
        assert faults(shape.records, [*lines, line]) != []
        assert faults(shape.records, [other for other in lines if other is not line]) != []


@pytest.mark.spark
def test_windows_are_exact_on_spark_though_a_worker_and_the_driver_die(tmp_path: Path) -> None:
    shape = Shape(str(tmp_path), records=900, per_second=60, spark=True, interval_ms=400)
    with started(shape) as first:
        assert first.wait_until(partial(has_reached, shape, 1)), first.words()
        killed = 0
        while not killed and first.is_running:
            for worker in first.workers()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                    killed += 1
            time.sleep(0.05)
        wanted = checkpoints(shape) + 2
        assert first.wait_until(partial(has_reached, shape, wanted)), first.words()
        time.sleep(random.Random().uniform(0.0, 1.0))
    with started(shape) as last:
        assert last.wait(200) == 0, last.words()
    assert faults(shape.records, read_lines(shape.output)) == []
    assert journal_of(shape).attempts_so_far >= 2
