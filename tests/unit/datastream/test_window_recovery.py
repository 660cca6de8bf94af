"""Windows through failures, savepoints, other backends and another parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.testing import Idle
from tests.unit.datastream.windowed_program import Windowed, expected, session_lines
from tests.unit.job.counting import Program, bursts, launched
from tests.unit.support import eventually

RECORDS = 90


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def test_the_program_has_sessions_that_merge() -> None:
    sizes = [line.count(",") + 1 for line in session_lines(range(RECORDS))]
    assert max(sizes) > 3
    assert min(sizes) == 1


@pytest.mark.parametrize("backend", ["memory", "hashmap", "rocksdb"])
def test_a_failure_neither_loses_nor_doubles_a_record_of_a_window(
    tmp_path: Path, backend: str
) -> None:
    settings = {"state__backend__type": backend}
    program = Windowed(tmp_path, bursts(RECORDS), fails=(40, 66, 81), settings=settings)
    program.run()
    assert Counter(program.lines()) == expected(RECORDS)


@pytest.mark.parametrize(("old", "new"), [("hashmap", "memory"), ("memory", "rocksdb")])
def test_windows_in_flight_continue_from_a_savepoint_at_another_parallelism(
    tmp_path: Path, old: str, new: str
) -> None:
    script = [*bursts(33), Idle()]
    first = Windowed(tmp_path, script, settings={"state__backend__type": old})
    job = first.launch()
    eventually(lambda: sum(r.records_in for r in job.micro_batches() if r.stage == 1) >= 33)
    path = job.savepoint(str(tmp_path / "savepoints")).result(20)
    job.cancel()
    assert job.wait_for_end(20)
    settings = {"execution__state_recovery__path": path, "state__backend__type": new}
    (tmp_path / "second").mkdir()
    again = Windowed(tmp_path / "second", bursts(RECORDS), parallelism=3, settings=settings)
    again.run()
    lines = [*Program(tmp_path).lines(), *again.lines()]
    assert Counter(lines) == expected(RECORDS)
    assert again.lines(), "some windows were in flight"
