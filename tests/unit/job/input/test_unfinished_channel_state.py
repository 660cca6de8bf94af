"""Attempts that end while an unaligned barrier is still missing in an input."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus
from penstock.common import Types
from penstock.datastream import DataStream
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, CrashPoint, Idle, arm, disarm
from tests.unit.job.counting import launched
from tests.unit.job.input.test_many_inputs import UNALIGNED, TwoSources
from tests.unit.support import eventually

IS_HELD, MAY_GO = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    IS_HELD.clear()
    MAY_GO.clear()
    yield
    disarm()
    MAY_GO.set()
    for job in launched:
        job.kill()
    launched.clear()


def delayed(number: int) -> int:
    IS_HELD.set()
    assert MAY_GO.wait(30)
    return number


@dataclass
class LateInput(TwoSources):
    """Delays an odd number, so that a barrier must wait for it."""

    even: Sequence[Any] = field(default_factory=lambda: [Burst(range(0, 40, 2)), Idle()])
    odd: Sequence[Any] = field(default_factory=lambda: [Burst([1]), Idle()])
    seconds: float = 0.0
    interval: str | None = "1 h"

    def _source(self, env: StreamExecutionEnvironment, name: str, script: Any) -> DataStream:
        numbers = super()._source(env, name, script)
        return numbers if name == "even" else numbers.map(delayed, Types.LONG()).uid("delayed")

    def launch_and_overtake(self) -> LaunchedJob:
        """Start and trigger a checkpoint; returns when all but the odd numbers have passed it."""
        overtaken = threading.Event()
        arm(CrashPoint.STAGE_BARRIER_FORWARDED, 2, overtaken.set)
        job = self.launch()
        assert IS_HELD.wait(20)
        job.trigger_checkpoint()
        assert overtaken.wait(20)
        return job

    def over(self) -> list[CheckpointStats]:
        """The checkpoints that have ended."""
        return [c for c in self.history().checkpoints() if c.status is not CheckpointStatus.PENDING]


def test_a_cancelled_job_reports_no_failed_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = LateInput(tmp_path, settings=UNALIGNED)
    job = program.launch_and_overtake()
    job.suspend()
    eventually(lambda: bool(program.over()))
    MAY_GO.set()
    assert job.wait_for_end(20)
    (given_up,) = program.over()
    assert (given_up.failure or "").startswith("job-stopping")
    assert program.history().exceptions() == []
    assert "failed" not in caplog.text


def test_no_checkpoint_is_triggered_after_the_last_tolerable_failure(tmp_path: Path) -> None:
    settings = {
        **UNALIGNED,
        "execution__checkpointing__timeout": "20 ms",
        "restart_strategy__type": "none",
    }
    program = LateInput(tmp_path, settings=settings, interval="50 ms")
    job = program.launch()
    eventually(lambda: bool(program.over()))
    time.sleep(0.2)
    MAY_GO.set()
    assert job.wait_for_end(20)
    (failed,) = program.over()
    assert (failed.failure or "").startswith("expired")
