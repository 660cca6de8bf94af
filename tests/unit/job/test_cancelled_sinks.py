"""What a cancelled job leaves in the systems it writes to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.job.counting import Program, checkpoint, idle_after, launched, wait_for_records


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def staged(program: Program) -> list[Path]:
    return [p for p in (program.root / program.output).rglob(".staging-*/**/*") if p.is_file()]


def test_a_cancelled_job_leaves_nothing_that_no_checkpoint_holds(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(20), interval="10 h")
    job = program.launch()
    wait_for_records(job, 20)
    assert staged(program)
    job.cancel()
    assert job.wait_for_end(20)
    assert staged(program) == []


def test_a_suspended_job_keeps_what_its_checkpoint_holds(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(20), interval="10 h")
    job = program.launch()
    wait_for_records(job, 20)
    checkpoint(job)
    job.suspend()
    assert job.wait_for_end(20)
    again = program.launch()
    wait_for_records(again, 0)
    assert program.verdict(20).lost == ()
