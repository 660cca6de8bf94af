"""Jobs on machines whose clock is set while they run."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.errors import UserFunctionError
from penstock.job import job_run
from penstock.job.time.region_time import RegionTime
from tests.unit.job.counting import Program


def test_a_failure_rate_is_counted_by_a_clock_that_is_never_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = itertools.count(1_700_000_000, 7200)
    jumping = SimpleNamespace(time=lambda: float(next(hours)), monotonic=time.monotonic)
    monkeypatch.setattr(job_run, "time", jumping)
    rate = "restart_strategy__failure_rate__"
    settings = {
        "restart_strategy__type": "failure-rate",
        f"{rate}max_failures_per_interval": "2",
        f"{rate}failure_rate_interval": "1 h",
        f"{rate}delay": "1 ms",
    }
    program = Program(tmp_path, fails=[5, 15, 25, 35, 45, 55], settings=settings)
    with pytest.raises(UserFunctionError):
        program.run()
    assert len(program.history().exceptions()) == 3


def test_a_wait_for_idleness_does_not_depend_on_the_time_of_day() -> None:
    stage = SimpleNamespace(next_processing_timer=lambda: None, next_wakeup=lambda _: 107.0)
    region = RegionTime([stage], [])  # type: ignore[list-item]
    for time_of_day in (5_000.0, 1_400.0, 8_600.0):
        assert region.wait_seconds(time_of_day, 100.0) == 7.0
    stage.next_processing_timer = lambda: 1_403_000
    assert region.wait_seconds(1_400.0, 100.0) == 3.0
