"""The killed job on a real Spark: its driver dies twice and a worker once, and it resumes."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.driver import Driver, completed_checkpoints, journal_of, started
from tests.crash.output_verifier import read_results, verify_output
from tests.crash.pipeline import Variant

pytestmark = [pytest.mark.crash, pytest.mark.spark]

START_S = 150.0


def on_spark(directory: Path) -> Variant:
    return Variant(
        str(directory),
        fast=1_500,
        slow=60,
        interval_ms=400,
        max_batch=150,
        pause_ms=150,
        spark=True,
        settings={"spark.master": "local[2]", "penstock.source.poll-interval": "20 ms"},
    )


def wait_for_checkpoints(driver: Driver, variant: Variant, number: int) -> None:
    wanted = completed_checkpoints(variant) + number
    reached = driver.wait_until(lambda: completed_checkpoints(variant) >= wanted, START_S)
    assert reached, f"it ended early:\n{driver.words()}"


def test_a_driver_killed_twice_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    variant, rng = on_spark(tmp_path), random.Random()
    with started(variant) as driver:
        wait_for_checkpoints(driver, variant, 2)
        time.sleep(rng.uniform(0.0, 1.0))
        # Only the driver: its JVM and tasks live on for a moment without it.
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        with started(variant) as second:
            wait_for_checkpoints(second, variant, 2)
            time.sleep(rng.uniform(0.0, 1.0))
            assert second.kill() == -9, second.words()
    with started(variant) as last:
        assert last.wait(180) == 0, last.words()
    verdict = verify_output(variant.fast, variant.slow, read_results(variant.output))
    assert verdict.is_exactly_once, verdict
    assert journal_of(variant).attempts_so_far >= 3


def test_killed_workers_cost_a_try_but_not_an_attempt(tmp_path: Path) -> None:
    variant = on_spark(tmp_path)
    with started(variant) as driver:
        wait_for_checkpoints(driver, variant, 1)
        killed = 0
        while killed < 2 and driver.is_running:
            for worker in driver.workers()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                    killed += 1
            time.sleep(0.5)
        assert driver.wait(180) == 0, driver.words()
    assert killed, "there was no worker to kill"
    assert journal_of(variant).attempts_so_far == 1
    verdict = verify_output(variant.fast, variant.slow, read_results(variant.output))
    assert verdict.is_exactly_once, verdict
