"""Where subtasks ran, counted from what micro-batches tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.job.report import MicroBatchReport, whereabouts
from penstock.state.local_dir import LOCAL_DIR_VARIABLE
from penstock.task.messages import Home
from tests.unit.job.counting import Program, bursts

HERE, THERE = Home("node-1", "/local"), Home("node-2", "/local")


def report(batch: int, *homes: Home | None, stage: int = 1) -> MicroBatchReport:
    return MicroBatchReport(stage, "count", batch, 1, 0.0, 0.0, 0.0, 1, 1, homes=homes)


def test_a_subtask_that_stays_is_at_home_and_one_that_goes_has_moved() -> None:
    where = whereabouts([report(1, HERE, THERE), report(2, HERE, HERE), report(3, HERE, HERE)])
    assert (where.at_home, where.moved) == (3, 1)
    assert where.share_at_home == 0.75


def test_another_directory_is_another_home() -> None:
    where = whereabouts([report(1, HERE), report(2, Home("node-1", "/elsewhere"))])
    assert (where.at_home, where.moved) == (0, 1)


def test_stages_are_counted_apart_and_the_first_time_not_at_all() -> None:
    where = whereabouts([report(1, HERE), report(1, THERE, stage=2), report(2, HERE)])
    assert (where.at_home, where.moved) == (1, 0)
    assert whereabouts([]).share_at_home == 1.0


def test_a_subtask_without_work_keeps_its_home() -> None:
    where = whereabouts([report(1, HERE), report(2, None), report(3, HERE)])
    assert (where.at_home, where.moved) == (1, 0)


def test_rebuilt_state_is_counted_wherever_it_was() -> None:
    rebuilt = Home("node-2", "/local", rebuilt=True)
    where = whereabouts([report(1, HERE), report(2, rebuilt), report(3, THERE)])
    assert (where.at_home, where.moved, where.rebuilt) == (1, 1, 1)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_on_one_host_is_always_at_home_and_rebuilds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv(LOCAL_DIR_VARIABLE, str(tmp_path / "own"))
    settings = {
        "state__backend__type": backend,
        "penstock__state__local_dir": str(tmp_path / "configured"),
    }
    program = Program(tmp_path, bursts(60), settings=settings)
    reports = list(program.build().execute("count").get_micro_batches())
    where = whereabouts(reports)
    assert where.at_home > 2
    assert (where.moved, where.rebuilt) == (0, 0)
    homes = {home.directory for told in reports for home in told.homes if home is not None}
    assert {str(Path(home).parent) for home in homes} == {str(tmp_path / "own")}
    assert not list((tmp_path / "own").iterdir()), "nothing is left on the host"
    assert not (tmp_path / "configured").exists()
