"""Each host keeps state where it says; what dead attempts left there goes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from penstock.common import pickling
from penstock.ids import AttemptId
from penstock.state import local_dir
from penstock.state.local_dir import LOCAL_DIR_VARIABLE, AttemptDir, HostDir, choose_local_dir

GIVEN_BY_SPARK = ("LOCAL_DIRS", "CONTAINER_ID", "SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS")


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (LOCAL_DIR_VARIABLE, *GIVEN_BY_SPARK):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(local_dir, "_cleaned_up", set())


# -- which directory ----------------------------------------------------------------------------


def test_shared_memory_is_chosen_if_it_has_enough_space(tmp_path: Path) -> None:
    assert choose_local_dir(1, shared_memory=tmp_path) == tmp_path


def test_small_or_missing_shared_memory_is_not_chosen(tmp_path: Path) -> None:
    temporary = Path(tempfile.gettempdir())
    assert choose_local_dir(1 << 60, shared_memory=tmp_path) == temporary
    assert choose_local_dir(1, shared_memory=tmp_path / "missing") == temporary
    assert choose_local_dir(1 << 60, tmp_path, tmp_path / "disk") == tmp_path / "disk"


def test_the_hosts_environment_overrides_the_jobs_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = HostDir(tmp_path / "configured", "penstock-count")
    assert directory.resolve() == tmp_path / "configured" / "penstock-count"
    monkeypatch.setenv(LOCAL_DIR_VARIABLE, str(tmp_path / "own"))
    assert (directory / "a1" / "totals").resolve() == tmp_path / "own" / "penstock-count/a1/totals"


def test_a_directory_travels_to_another_host_and_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = pickling.dumps(HostDir(None, "penstock-count"))
    monkeypatch.setenv(LOCAL_DIR_VARIABLE, str(tmp_path / "there"))
    assert pickling.loads(shipped).resolve() == tmp_path / "there" / "penstock-count"


def test_a_chosen_directory_stays_when_free_space_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    for path in (memory, disk):
        path.mkdir()
    monkeypatch.setattr(local_dir, "SHARED_MEMORY", memory)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(disk))
    directory = HostDir(None, "penstock-count") / "a1"
    monkeypatch.setattr(local_dir, "ENOUGH", 1)
    assert directory.resolve() == memory / "penstock-count" / "a1"
    directory.resolve().mkdir(parents=True)
    monkeypatch.setattr(local_dir, "ENOUGH", 1 << 60)
    assert directory.resolve() == memory / "penstock-count" / "a1"
    other = HostDir(None, "penstock-other")
    assert other.resolve() == disk / "penstock-other"
    other.resolve().mkdir()
    monkeypatch.setattr(local_dir, "ENOUGH", 1)
    assert other.resolve() == disk / "penstock-other"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SPARK_LOCAL_DIRS": "{0}/gone,{0}/b"}, "b"),
        ({"SPARK_EXECUTOR_DIRS": "{0}/a:{0}/b", "SPARK_LOCAL_DIRS": "{0}/c"}, "a"),
        ({"CONTAINER_ID": "c", "LOCAL_DIRS": "{0}/c,{0}/b", "SPARK_EXECUTOR_DIRS": "{0}/a"}, "c"),
        ({"LOCAL_DIRS": "{0}/c", "SPARK_EXECUTOR_DIRS": "{0}/a"}, "a"),
    ],
    ids=["of Spark", "of a standalone worker", "of YARN", "of no cluster manager"],
)
def test_a_host_without_shared_memory_uses_the_disk_that_spark_was_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    expected: str,
) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value.format(tmp_path))
    monkeypatch.setattr(local_dir, "SHARED_MEMORY", tmp_path / "missing")
    assert HostDir(None, "penstock-count").resolve() == tmp_path / expected / "penstock-count"


# -- what dead attempts left --------------------------------------------------------------------


def on_host(root: Path, attempt: str) -> AttemptDir:
    return AttemptDir(HostDir(root, "penstock-count"), AttemptId(attempt))


def written(root: Path, *attempts: str) -> Path:
    for attempt in attempts:
        store = on_host(root, attempt).host_dir.resolve() / "totals" / "0"
        store.mkdir(parents=True)
        (store / "data.mdb").write_bytes(b"state")
    return root / "penstock-count"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_task_removes_what_older_attempts_left_and_nothing_else(tmp_path: Path) -> None:
    directory = written(tmp_path, "a1", "a2", "a3", "a10", "not-an-attempt")
    on_host(tmp_path, "a3").remove_older_attempts()
    assert names(directory) == ["a10", "a3", "not-an-attempt"]


def test_a_task_looks_for_them_once(tmp_path: Path) -> None:
    directory = written(tmp_path, "a1", "a2")
    on_host(tmp_path, "a2").remove_older_attempts()
    # A zombie of the first attempt still writes; who comes next removes that.
    written(tmp_path, "a1")
    on_host(tmp_path, "a2").remove_older_attempts()
    assert names(directory) == ["a1", "a2"]
    on_host(tmp_path, "a3").remove_older_attempts()
    assert not list(directory.iterdir())


def test_a_host_that_has_nothing_of_the_job_stays_so(tmp_path: Path) -> None:
    on_host(tmp_path / "host", "a2").remove_older_attempts()
    on_host(tmp_path / "host", "a2").leave()
    assert not (tmp_path / "host").exists()


def test_an_attempt_leaves_with_all_that_came_before_it(tmp_path: Path) -> None:
    directory = written(tmp_path, "a1", "a2")
    on_host(tmp_path, "a2").leave()
    assert not directory.exists()


def test_an_attempt_that_was_taken_over_leaves_its_successor_alone(tmp_path: Path) -> None:
    directory = written(tmp_path, "a1", "a2")
    on_host(tmp_path, "a1").leave()
    on_host(tmp_path, "a1").leave()
    assert names(directory) == ["a2"]
    assert (directory / "a2" / "totals" / "0" / "data.mdb").read_bytes() == b"state"
