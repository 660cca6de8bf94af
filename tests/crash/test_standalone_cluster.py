"""A job with checkpoints on a standalone cluster, whose executors and driver are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash.driver import completed_checkpoints, started
from tests.crash.judge import judge, read_results
from tests.crash.pipeline import Variant
from tests.crash.standalone import standalone_cluster

pytestmark = [pytest.mark.crash, pytest.mark.spark]


def test_killed_executors_and_a_killed_driver_leave_no_trace(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster:
        variant = Variant(
            directory=str(tmp_path),
            fast=1500,
            slow=60,
            backend="rocksdb",
            incremental=True,
            interval_ms=300,
            max_batch=150,
            pause_ms=150,
            spark=True,
            settings={
                "spark.master": cluster.address,
                "spark.executor.cores": "1",
                "spark.executor.memory": "512m",
                "spark.driver.host": "127.0.0.1",
            },
        )

        def has_more_than(checkpoints: int) -> bool:
            return completed_checkpoints(variant) > checkpoints

        with started(variant) as driver:
            assert driver.wait_until(lambda: has_more_than(1), 180)
            alive = cluster.executors()
            assert len(alive) == 2
            os.kill(alive[0], signal.SIGKILL)
            seen = completed_checkpoints(variant)
            assert driver.wait_until(lambda: has_more_than(seen + 1), 180)
            driver.kill()
        with started(variant) as driver:
            assert driver.wait(240) == 0, driver.words()
        verdict = judge(variant.fast, variant.slow, read_results(variant.output))
        assert verdict.is_exactly_once, str(verdict)
