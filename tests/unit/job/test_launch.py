"""Jobs launched in one process, and their directories."""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.checkpoint.storage import job_dir
from penstock.errors import JobAlreadyRunningError, UnusableDirectoryError
from penstock.job.launch import _launched
from penstock.storage.local_storage import LocalStorage
from tests.local_paths import local
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
    local(copy.dir.driver).unlink()
    copy.run()
    assert sorted((tmp_path / "work").rglob("*")) == before
    job.cancel()
    assert job.wait_for_end(20)
    assert list((tmp_path / "work").iterdir()) == []


def test_a_work_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("in the way")
    with pytest.raises(UnusableDirectoryError, match=r"work.*or set penstock.work-dir to another"):
        working_in(tmp_path).run()


def test_a_checkpoint_directory_that_cannot_be_used_is_named_with_its_key(tmp_path: Path) -> None:
    program = working_in(tmp_path)
    program.directory = "in the way/below"
    (tmp_path / "in the way").write_text("")
    with pytest.raises(UnusableDirectoryError, match=r"Not a .* set execution\.checkpointing"):
        program.run()


def test_a_checkpoint_directory_that_is_read_only_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(**_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("penstock.job.launch.tempfile.TemporaryFile", read_only)
    with pytest.raises(UnusableDirectoryError, match=r"Read-only .* set execution\.checkpointing"):
        working_in(tmp_path).run()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_owner_may_enter_a_job_directory(tmp_path: Path) -> None:
    program = working_in(tmp_path)
    program.script = idle_after(5)
    job = program.launch()
    (work,) = (tmp_path / "work").iterdir()
    assert (mode(local(program.dir.path)), mode(work)) == (0o700, 0o700)
    job.cancel()
    assert job.wait_for_end(20)


def test_a_start_tightens_the_mode_of_its_own_job_directory(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.run()
    local(program.dir.path).chmod(0o777)
    other = tmp_path / "checkpoints" / "other"
    other.mkdir(mode=0o755)
    program.run()
    assert mode(local(program.dir.path)) == 0o700
    assert mode(other) == 0o755


def test_a_job_directory_of_another_user_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Local state directories must belong to the user, which is not so with the id below.
    program = Program(tmp_path, settings={"state__backend__type": "memory"})
    program.run()
    local(program.dir.path).chmod(0o770)
    # Only here: local state is checked against the real user.
    changed = SimpleNamespace(**{**vars(os), "geteuid": lambda: 12345})
    monkeypatch.setattr("penstock.job.launch.os", changed)
    program.run()
    assert mode(local(program.dir.path)) == 0o770


def test_the_arguments_in_job_json_have_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--password", "s3cret", "--db=postgresql://me:s3cret@db", "-Dsasl.password=s3cret"]
    monkeypatch.setattr("sys.argv", ["job.py", "--day", "monday", *given])
    program = Program(tmp_path)
    program.run()
    facts = program.dir.read_facts()
    assert facts is not None
    assert facts.args[:4] == ["--day", "monday", "--password", "***"]
    assert "s3cret" not in local(program.dir.job).read_text()


class Overwriting(LocalStorage):
    """As a store without conditional writes."""

    def create(self, path: str, data: bytes) -> None:
        self.replace(path, data)


def test_a_store_that_overwrites_what_exists_is_refused_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_dir, "storage_at", lambda _: Overwriting(tmp_path / "store"))
    program = Program(
        tmp_path,
        idle_after(5),
        directory=None,
        settings={"execution__checkpointing__dir": "s3://bucket/jobs"},
    )
    with pytest.raises(UnusableDirectoryError, match="it overwrites what has to be created"):
        program.launch()
    assert Overwriting(tmp_path / "store").list("") == ["birth"]
