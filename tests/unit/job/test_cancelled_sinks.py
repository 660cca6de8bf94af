"""What a cancelled job leaves in external systems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.connectors.two_phase.sink import RetryLater, TwoPhaseSink
from penstock.errors import UncommittedOutputError
from penstock.testing import Burst, Idle, ManualClock, Pause
from tests.unit.job.counting import (
    Program,
    checkpoint,
    idle_after,
    launched,
    wait_for_records,
)
from tests.unit.support import eventually


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def staged(program: Program) -> list[Path]:
    return [p for p in (program.root / program.output).rglob(".staging-*/**/*") if p.is_file()]


def test_a_cancelled_job_removes_output_of_no_completed_checkpoint(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(20), interval="10 h")
    job = program.launch()
    wait_for_records(job, 20)
    assert staged(program)
    job.cancel()
    assert job.wait_for_end(20)
    assert staged(program) == []


def test_a_suspended_job_keeps_the_output_of_its_checkpoint(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(20), interval="10 h")
    job = program.launch()
    wait_for_records(job, 20)
    checkpoint(job)
    job.suspend()
    assert job.wait_for_end(20)
    again = program.launch()
    wait_for_records(again, 0)
    assert program.verdict(20).lost == ()


# -- an unavailable server ----------------------------------------------------------------------


@dataclass
class Away(Program):
    """Writes to a server that accepts no commits while it is unavailable."""

    committed: ClassVar[list[str]]
    is_away: ClassVar[bool]

    def sink(self) -> Any:
        def commit(values: list[str]) -> None:
            if Away.is_away:
                raise RetryLater
            Away.committed.extend(values)

        return TwoPhaseSink(
            open=lambda context: [],
            write=lambda transaction, values: transaction.extend(values),
            prepare=lambda transaction: transaction,
            commit=commit,
        )


@pytest.fixture
def away(tmp_path: Path) -> Away:
    Away.committed, Away.is_away = [], True
    return Away(
        tmp_path,
        [Burst(range(20)), Idle()],
        interval="10 h",
        settings={"sink__committer__retries": "100"},
    )


def test_a_job_cancelled_with_pending_commits_fails_and_keeps_the_output(away: Away) -> None:
    job = away.launch()
    wait_for_records(job, 20)
    done = checkpoint(job)
    job.cancel()
    assert job.wait_for_end(20)
    with pytest.raises(UncommittedOutputError, match=f"checkpoint {done}"):
        job.raise_failure()
    Away.is_away = False
    again = away.launch()
    eventually(lambda: len(Away.committed) == 20)
    again.cancel()
    assert again.wait_for_end(20)
    again.raise_failure()


def test_savepoints_of_a_job_without_checkpoints_come_before_its_end(tmp_path: Path) -> None:
    Away.committed, Away.is_away = [], False
    # The input cannot end before the savepoint, however slow the machine is.
    clock, numbers = ManualClock(), range(20)
    script = [Burst(numbers), Pause(1), Burst(numbers)]
    job = Away(tmp_path, script, interval=None, clock=clock).launch()
    wait_for_records(job, 5)
    job.savepoint(str(tmp_path / "savepoints")).result(20)
    clock.advance(1)
    assert job.wait_for_end(20)
    job.raise_failure()
    ranks = [int(line.split()[1]) for line in Away.committed if line.startswith("0 ")]
    assert ranks == sorted(ranks)
    assert len(Away.committed) == 40
