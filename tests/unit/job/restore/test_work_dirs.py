"""Directories of dead attempts are removed, those of others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.ids import AttemptId, JobKey
from penstock.job.restore.work_dirs import own_work_dir, remove_dead_work_dirs
from penstock.state.local_dir import HostDir
from penstock.task.layout import AttemptLayout


def worked_in(root: Path, name: str, job_dir: Path) -> Path:
    directory = root / name
    (directory / "a1" / "channels").mkdir(parents=True)
    own_work_dir(directory, job_dir)
    return directory


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "count"
    path.mkdir(parents=True)
    return path


def mine(tmp_path: Path, job_dir: Path) -> AttemptLayout:
    shared, local = tmp_path / "penstock-mine", HostDir(tmp_path / "local", "penstock-count-0f")
    return AttemptLayout(shared, local, AttemptId("a2"), job_dir, JobKey("count"))


def test_the_directory_of_a_dead_attempt_is_removed_and_the_own_one_stays(
    tmp_path: Path, job_dir: Path
) -> None:
    dead, own = (worked_in(tmp_path, f"penstock-{n}", job_dir) for n in ("dead", "mine"))
    remove_dead_work_dirs([dead, own, tmp_path / "penstock-gone"], mine(tmp_path, job_dir))
    assert not dead.exists()
    assert (own / "a1" / "channels").is_dir()


def test_a_copied_job_leaves_the_work_directory_of_its_original_alone(
    tmp_path: Path, job_dir: Path
) -> None:
    copy = tmp_path / "copy" / "count"
    copy.mkdir(parents=True)
    original = worked_in(tmp_path, "penstock-work", job_dir)
    local = tmp_path / "local" / "penstock-count-of-the-original"
    (local / "a1").mkdir(parents=True)
    remove_dead_work_dirs([original, local], mine(tmp_path, copy))
    assert (original / "a1" / "channels").is_dir()
    assert (local / "a1").is_dir()


@pytest.mark.parametrize("name", ["penstock-work", "mine"])
def test_a_directory_without_the_owner_file_stays(tmp_path: Path, job_dir: Path, name: str) -> None:
    directory = worked_in(tmp_path, name, job_dir)
    if name.startswith("penstock"):
        (directory / "owner").unlink()
    remove_dead_work_dirs([directory], mine(tmp_path, job_dir))
    assert (directory / "a1").is_dir()


def test_only_older_attempts_are_removed_from_local_directories(
    tmp_path: Path, job_dir: Path
) -> None:
    layout = mine(tmp_path, job_dir)
    own, other = layout.local.resolve(), tmp_path / "other" / layout.local.name
    for local in (own, other):
        for attempt in ("a1", "a2", "a10"):
            (local / attempt).mkdir(parents=True)
    remove_dead_work_dirs([other], layout)
    assert sorted(p.name for p in own.iterdir()) == ["a10", "a2"]
    assert sorted(p.name for p in other.iterdir()) == ["a10"]


def test_an_interrupted_removal_is_completed_by_the_next(tmp_path: Path, job_dir: Path) -> None:
    dead = worked_in(tmp_path, "penstock-dead", job_dir)
    (dead / "a1" / "channels").rmdir()
    (dead / "a1").rmdir()
    remove_dead_work_dirs([dead], mine(tmp_path, job_dir))
    assert not dead.exists()
