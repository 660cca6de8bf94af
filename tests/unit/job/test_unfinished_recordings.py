"""Attempts that end while a barrier that has overtaken still waits for an input."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.history import RecordStatus
from penstock.common import Types
from penstock.datastream import DataStream
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.testing import Burst, CrashPoint, Idle, arm, disarm
from tests.unit.job.counting import launched
from tests.unit.job.test_many_inputs import UNALIGNED, TwoSources


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    disarm()
    for job in launched:
        job.kill()
    launched.clear()


def slowly(number: int) -> int:
    time.sleep(0.2)
    return number


@dataclass
class LateInput(TwoSources):
    """Odd numbers take so long that a barrier must wait for what is before it there."""

    even: Sequence[Any] = field(default_factory=lambda: [Burst(range(0, 40, 2)), Idle()])
    odd: Sequence[Any] = field(default_factory=lambda: [Burst([1, 3, 5]), Idle()])
    seconds: float = 0.0
    interval: str | None = "100 ms"

    def _source(self, env: StreamExecutionEnvironment, name: str, script: Any) -> DataStream:
        numbers = super()._source(env, name, script)
        return numbers if name == "even" else numbers.map(slowly, Types.LONG()).uid("slowly")


def run_until_overtaken(program: LateInput) -> Any:
    """Start, and return when the step with two inputs has passed a barrier on."""
    overtaken = threading.Event()
    arm(CrashPoint.STAGE_BARRIER_FORWARDED, 2, overtaken.set)
    job = program.launch()
    assert overtaken.wait(20)
    return job


def test_a_job_that_is_ended_tells_of_no_failed_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = LateInput(tmp_path, settings=UNALIGNED)
    job = run_until_overtaken(program)
    job.suspend()
    assert job.wait_for_end(20)
    failures = [c.failure for c in program.history().checkpoints() if c.failure]
    assert failures
    assert all(failure.startswith("job-stopping") for failure in failures), failures
    assert program.history().exceptions() == []
    assert "failed" not in caplog.text


def test_no_checkpoint_is_begun_behind_the_last_that_is_tolerable(tmp_path: Path) -> None:
    settings = {
        **UNALIGNED,
        "execution__checkpointing__timeout": "20 ms",
        "restart_strategy__type": "none",
    }
    program = LateInput(tmp_path, settings=settings)
    job = run_until_overtaken(program)
    assert job.wait_for_end(20)
    (failed,) = program.history().checkpoints()
    assert failed.status is RecordStatus.FAILED
    assert (failed.failure or "").startswith("expired")
