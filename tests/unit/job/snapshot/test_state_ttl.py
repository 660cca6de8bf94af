"""A job whose state expires: by the clock, across a kill, and out of the files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.client.snapshot_facts import inspect
from penstock.common import Types
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.testing import Burst, Idle, ManualClock, Pause
from penstock.testing.inline import run_inline
from tests.unit.job.counting import Program, checkpoint, die, wait_for_lines, wait_for_records

PAGE = Path(__file__).parents[4] / "docs" / "concepts" / "ttl.md"
HOUR = 3600.0


def once_per_hour() -> Any:
    """Return the function that the page shows."""
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(shown, names)
    return names["OncePerHour"]()


class Expiring(Program):
    """Lets every number through once per hour."""

    def environment(self) -> StreamExecutionEnvironment:
        assert self.clock is not None
        return run_inline(super().environment(), self.clock)

    def count(self, numbers: DataStream) -> None:
        (
            numbers.key_by(lambda n: n, Types.LONG())
            .process(once_per_hour(), Types.LONG())
            .uid("once")
            .sink_to(self.sink())
            .uid("files")
        )


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_values_expire_by_the_jobs_clock_also_after_its_driver_was_killed(
    tmp_path: Path, backend: str
) -> None:
    clock = ManualClock(1_000_000.0)
    script = [
        Burst([1, 2, 1]),
        Pause(HOUR / 2),
        Burst([1, 3]),
        Pause(HOUR / 2),
        Burst([1, 3]),
        Idle(),
    ]
    program = Expiring(
        tmp_path,
        script,
        clock=clock,
        interval="1 h",
        settings={"state__backend__type": backend},
    )
    job = program.launch()
    wait_for_records(job, 3)
    clock.advance(HOUR / 2)
    wait_for_records(job, 5)
    number = checkpoint(job)
    wait_for_lines(program, 3)
    assert sorted(program.lines()) == ["1", "2", "3"]
    die(job)
    facts = inspect(program.dir.path / f"chk-{number}")
    (once,) = [operator for operator in facts.operators if operator.uid == "once"]
    states = [state for subtask in once.subtasks for state in subtask.states]
    assert {(s.name, s.ttl_ms) for s in states} == {("seen", 3_600_000)}
    assert sum(s.entries for s in states) == 3

    job = program.launch()
    clock.advance(HOUR / 2)
    wait_for_records(job, 2)
    number = checkpoint(job)
    wait_for_lines(program, 4)
    # 1 has expired, 3 has not; 2 has expired and was not read.
    assert sorted(program.lines()) == ["1", "1", "2", "3"]
    die(job)
    facts = inspect(program.dir.path / f"chk-{number}")
    (once,) = [operator for operator in facts.operators if operator.uid == "once"]
    assert sum(s.entries for subtask in once.subtasks for s in subtask.states) == 2
