"""Locality of subtasks, counted from reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.job.reports import MicroBatchReport, locality_stats
from penstock.state.local_dir import LOCAL_DIR_VARIABLE
from penstock.task.messages import SubtaskLocation
from tests.unit.job.counting import Program, bursts

HERE, THERE = SubtaskLocation("node-1", "/local"), SubtaskLocation("node-2", "/local")


def report(batch: int, *locations: SubtaskLocation | None, stage: int = 1) -> MicroBatchReport:
    return MicroBatchReport(stage, "count", batch, 1, 0.0, 0.0, 0.0, 1, 1, locations=locations)


def test_locality_counts_subtasks_that_stayed_and_moved() -> None:
    where = locality_stats([report(1, HERE, THERE), report(2, HERE, HERE), report(3, HERE, HERE)])
    assert (where.stayed, where.moved) == (3, 1)
    assert where.locality == 0.75


def test_another_directory_is_another_location() -> None:
    where = locality_stats([report(1, HERE), report(2, SubtaskLocation("node-1", "/elsewhere"))])
    assert (where.stayed, where.moved) == (0, 1)


def test_locality_is_counted_per_stage_from_the_second_micro_batch() -> None:
    where = locality_stats([report(1, HERE), report(1, THERE, stage=2), report(2, HERE)])
    assert (where.stayed, where.moved) == (1, 0)
    assert locality_stats([]).locality == 1.0


def test_a_subtask_without_work_keeps_its_location() -> None:
    where = locality_stats([report(1, HERE), report(2, None), report(3, HERE)])
    assert (where.stayed, where.moved) == (1, 0)


def test_rebuilt_state_is_counted_everywhere() -> None:
    rebuilt = SubtaskLocation("node-2", "/local", rebuilt=True)
    where = locality_stats([report(1, HERE), report(2, rebuilt), report(3, THERE)])
    assert (where.stayed, where.moved, where.rebuilt) == (1, 1, 1)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_on_one_host_runs_locally_and_rebuilds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv(LOCAL_DIR_VARIABLE, str(tmp_path / "own"))
    settings = {
        "state__backend__type": backend,
        "penstock__state__local_dir": str(tmp_path / "configured"),
    }
    program = Program(tmp_path, bursts(60), settings=settings)
    reports = list(program.build().execute("count").get_micro_batches())
    where = locality_stats(reports)
    assert where.stayed > 2
    assert (where.moved, where.rebuilt) == (0, 0)
    locations = {
        location.directory for one in reports for location in one.locations if location is not None
    }
    assert {str(Path(location).parent) for location in locations} == {str(tmp_path / "own")}
    assert not list((tmp_path / "own").iterdir()), "nothing is left on the host"
    assert not (tmp_path / "configured").exists()
