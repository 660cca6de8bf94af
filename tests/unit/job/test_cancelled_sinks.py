"""What a cancelled job leaves in the systems it writes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.connectors.callable_sink import RetryLater, TwoPhaseSink
from penstock.errors import UncommittedOutputError
from penstock.testing import Burst, Idle
from tests.unit.job.counting import (
    Program,
    bursts,
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


# -- a server that is away --------------------------------------------------------------------


@dataclass
class Away(Program):
    """Writes to a server that takes no commits while it is away."""

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


def test_a_job_cancelled_while_commits_wait_drops_nothing_and_says_so(away: Away) -> None:
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
    program = Away(tmp_path, [*bursts(20), *bursts(20)], interval=None)
    job = program.launch()
    wait_for_records(job, 5)
    job.savepoint(str(tmp_path / "savepoints")).result(20)
    assert job.wait_for_end(20)
    job.raise_failure()
    ranks = [int(line.split()[1]) for line in Away.committed if line.startswith("0 ")]
    assert ranks == sorted(ranks)
    assert len(Away.committed) == 40
