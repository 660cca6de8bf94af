"""A job of windows, timers and rules killed at random: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from penstock.testing import read_lines
from tests.crash.job_shape import Shape
from tests.crash.windows_driver import (
    checkpoints,
    finish,
    has_reached,
    journal_of,
    kill_anywhere,
    kill_at_points,
    started,
)
from tests.crash.windows_program import PARTS, faults

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_windows_of_a_repeatedly_killed_driver_are_exact(tmp_path: Path, backend: str) -> None:
    shape = Shape(str(tmp_path), ("windows",), records=600, per_second=120, backend=backend)
    kill_anywhere(shape, random.Random(7), kills=3)
    assert faults(shape, read_lines(shape.output)) == []
    assert journal_of(shape).attempts_so_far >= 2


@pytest.mark.parametrize(
    ("part", "seed"), [("timers", 7), ("timers", 12), ("rules", 10), ("rules", 12)]
)
def test_timers_and_rules_of_a_driver_killed_at_crash_points_are_exact(
    tmp_path: Path, part: str, seed: int
) -> None:
    backend = "rocksdb" if seed % 2 else "hashmap"
    shape = Shape(str(tmp_path), (part,), records=360, per_second=120, backend=backend)
    kill_at_points(shape, random.Random(seed), kills=2)
    assert faults(shape, read_lines(shape.output)) == []
    assert journal_of(shape).attempts_so_far >= 2


def test_the_verifier_finds_lost_and_duplicated_results(tmp_path: Path) -> None:
    shape = Shape(str(tmp_path), tuple(PARTS), records=60, per_second=10_000)
    finish(shape)
    lines = read_lines(shape.output)
    assert faults(shape, lines) == []
    of_each_kind = {line.split(" ")[0]: line for line in lines}
    assert of_each_kind.keys() >= {"tumbling", "session", "alarm", "rated", "rates"}
    for line in of_each_kind.values():
        assert faults(shape, [*lines, line]) != []
        assert faults(shape, [other for other in lines if other is not line]) != []


@pytest.mark.spark
def test_all_are_exact_on_spark_even_if_a_worker_and_the_driver_die(tmp_path: Path) -> None:
    shape = Shape(
        str(tmp_path), tuple(PARTS), records=900, per_second=30, spark=True, interval_ms=400
    )
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
    finish(shape)
    assert faults(shape, read_lines(shape.output)) == []
    assert journal_of(shape).attempts_so_far >= 2
