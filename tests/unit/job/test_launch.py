"""Jobs launched in one process, and their directories."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.errors import JobAlreadyRunningError, UnwritablePathError
from penstock.job.launch import _launched
from tests.unit.job.counting import Program, idle_after, launched, wait_for_records


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def test_a_process_rejects_a_second_run_of_a_running_job(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(5))
    job = program.launch()
    with pytest.raises(JobAlreadyRunningError):
        program.launch()
    assert program.dir.path in _launched
    job.cancel()
    assert job.wait_for_end(20)
    launched.clear()
    del job
    gc.collect()
    assert program.dir.path not in _launched


def working_in(tmp_path: Path) -> Program:
    work = {"penstock__work_dir": str(tmp_path / "work")}
    return Program(tmp_path, interval=None, settings=work)


def test_a_copy_of_a_running_jobs_directory_leaves_the_job_alone(tmp_path: Path) -> None:
    original = working_in(tmp_path)
    original.script = idle_after(50)
    job = original.launch()
    wait_for_records(job, 50)
    before = sorted((tmp_path / "work").rglob("*"))
    copy = working_in(tmp_path)
    copy.directory, copy.output = "copy", "copied"
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "copy")
    copy.dir.driver.unlink()
    copy.run()
    assert sorted((tmp_path / "work").rglob("*")) == before
    job.cancel()
    assert job.wait_for_end(20)
    assert list((tmp_path / "work").iterdir()) == []


def test_a_work_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("in the way")
    with pytest.raises(UnwritablePathError, match="work"):
        working_in(tmp_path).run()
