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


is_slow = threading.Event()


def slowly(number: int) -> int:
    is_slow.set()
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


def test_a_job_that_is_ended_tells_of_no_failed_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = LateInput(tmp_path, settings=UNALIGNED, interval="1 h")
    overtaken = threading.Event()
    arm(CrashPoint.STAGE_BARRIER_FORWARDED, 2, overtaken.set)
    is_slow.clear()
    job = program.launch()
    assert is_slow.wait(20)
    job._run.checkpoint()
    assert overtaken.wait(20)
    job.suspend()
    assert job.wait_for_end(20)
    (given_up,) = program.history().checkpoints()
    assert (given_up.failure or "").startswith("job-stopping")
    assert program.history().exceptions() == []
    assert "failed" not in caplog.text


def test_no_checkpoint_is_begun_behind_the_last_that_is_tolerable(tmp_path: Path) -> None:
    settings = {
        **UNALIGNED,
        "execution__checkpointing__timeout": "20 ms",
        "restart_strategy__type": "none",
    }
    program = LateInput(tmp_path, settings=settings)
    job = program.launch()
    assert job.wait_for_end(20)
    (failed,) = program.history().checkpoints()
    assert failed.status is RecordStatus.FAILED
    assert (failed.failure or "").startswith("expired")
