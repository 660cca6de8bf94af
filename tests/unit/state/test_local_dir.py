"""Each host keeps state where it says; what dead attempts left there goes."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.common import pickling
from penstock.errors import LocalStateDirFullError, UnsafeLocalStateDirError
from penstock.ids import AttemptId
from penstock.state import local_dir
from penstock.state.local_dir import (
    LOCAL_DIR_VARIABLE,
    AttemptDir,
    HostDir,
    choose_local_dir,
    is_full,
    writing_to,
)

GIVEN_BY_SPARK = ("LOCAL_DIRS", "CONTAINER_ID", "SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS")


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (LOCAL_DIR_VARIABLE, *GIVEN_BY_SPARK):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(local_dir, "_cleaned_up", set())


# -- which directory ----------------------------------------------------------------------------


def test_shared_memory_is_chosen_if_it_has_enough_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_dir, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(local_dir, "ENOUGH", 1)
    assert choose_local_dir() == tmp_path


@pytest.mark.parametrize(("memory", "enough"), [("", 1 << 60), ("missing", 1)])
def test_small_or_missing_shared_memory_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, enough: int
) -> None:
    monkeypatch.setattr(local_dir, "SHARED_MEMORY", tmp_path / memory)
    monkeypatch.setattr(local_dir, "ENOUGH", enough)
    assert choose_local_dir() == Path(tempfile.gettempdir())
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "disk"))
    assert choose_local_dir() == tmp_path / "disk"


def test_state_that_may_exceed_memory_is_kept_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(local_dir, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(local_dir, "ENOUGH", 1)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "disk"))
    on_disk = HostDir(None, "penstock-count", in_memory=False)
    assert on_disk.resolve() == tmp_path / "disk" / "penstock-count"
    chosen = HostDir(tmp_path, "penstock-count", in_memory=False)
    assert chosen.resolve() == tmp_path / "penstock-count"


def test_a_temporary_directory_in_memory_is_the_last_resort_for_such_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(local_dir, "_is_in_memory", lambda path: path.name == "memory")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/memory,{tmp_path}/disk")
    assert HostDir(None, "x", in_memory=False).resolve() == tmp_path / "disk" / "x"


def test_file_systems_in_memory_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    line = "36 35 {}:{} / /data rw,relatime shared:1 - {} none rw"
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(local_dir, "_MOUNTS", mounts)
    for kind, is_in_memory in (("tmpfs", True), ("ext4", False)):
        lines = [line.format(0, 0, "ramfs"), line.format(os.major(device), os.minor(device), kind)]
        mounts.write_text("\n".join(lines))
        assert local_dir._is_in_memory(tmp_path) is is_in_memory


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
    directory.create()
    monkeypatch.setattr(local_dir, "ENOUGH", 1 << 60)
    assert directory.resolve() == memory / "penstock-count" / "a1"
    other = HostDir(None, "penstock-other")
    assert other.resolve() == disk / "penstock-other"
    other.create()
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


# -- who may use it -----------------------------------------------------------------------------

TOKEN = "0123456789abcdef" * 2


@pytest.fixture
def locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The locations of a host."""
    roots = [tmp_path / name for name in ("configured", "disk", "other-disk")]
    for root in roots:
        root.mkdir()
    monkeypatch.setattr(local_dir, "_locations", lambda *_: tuple(roots))
    return roots


def private(locations: list[Path]) -> HostDir:
    return HostDir(locations[0], "penstock-count", TOKEN) / "a1"


def test_a_directory_can_be_used_by_its_user_only(locations: list[Path]) -> None:
    old = os.umask(0)
    try:
        path = private(locations).create()
    finally:
        os.umask(old)
    assert path == locations[0] / f"penstock-count-{TOKEN}" / "a1"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert private(locations).create() == path


def of_another_user(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "a1").mkdir()
    os.chown(path, 12345, 12345)


def a_link_to_a_directory_of_this_user(path: Path) -> None:
    target = path.with_name("target")
    target.mkdir(mode=0o700)
    (target / "a1").mkdir()
    path.symlink_to(target)


def a_file(path: Path) -> None:
    path.write_bytes(b"")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(of_another_user, marks=needs_root),
        a_link_to_a_directory_of_this_user,
        a_file,
    ],
)
def test_what_others_have_put_there_is_not_used(
    locations: list[Path], planted: Callable[[Path], None]
) -> None:
    directory = private(locations)
    job = f"penstock-count-{TOKEN}"
    planted(locations[0] / job)
    assert directory.create() == locations[1] / job / "a1"
    assert directory.resolve() == locations[1] / job / "a1"
    planted(locations[2] / job)
    assert directory.resolve() == locations[1] / job / "a1"
    with pytest.raises(UnsafeLocalStateDirError, match=r"penstock\.state\.local-dir"):
        local_dir.make_private(locations[2] / job)
    # Nor is it removed.
    AttemptDir(HostDir(locations[0], "penstock-count", TOKEN), AttemptId("a9")).leave()
    assert [(root / job).exists() for root in locations] == [True, False, True]


def test_a_directory_that_others_could_write_to_is_replaced_by_an_empty_one(
    locations: list[Path],
) -> None:
    path = private(locations).create()
    path.mkdir()
    (path / "data.mdb").write_bytes(b"planted")
    path.parent.chmod(0o777)
    assert not private(locations).create().exists()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# -- full locations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (Exception("IO error: No space left on device: While appending to file"), True),
        (Exception("mdb_txn_commit: Input/output error"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (OSError("the local copy of the state cannot be read"), False),
    ],
)
def test_errors_of_a_full_location_are_recognised(error: Exception, full: bool) -> None:
    assert is_full(error) is full


def test_if_a_location_is_full_all_processes_of_the_host_use_the_next(
    locations: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    directory = private(locations) / "totals"
    full, used = {locations[0]}, []

    def write(path: Path) -> Path:
        with writing_to(path):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.is_relative_to(root) for root in full):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        used.append(path)
        return path

    job = f"penstock-count-{TOKEN}"
    assert directory.use(write) == locations[1] / job / "a1" / "totals"
    assert f"{locations[0]}/{job}/a1/totals (" in caplog.text
    assert not (locations[0] / job / "a1" / "totals").exists()
    other = private(locations) / "counts"
    assert other.resolve() == locations[1] / job / "a1" / "counts"
    full.add(locations[1])
    assert other.use(write) == locations[2] / job / "a1" / "counts"
    full.add(locations[2])
    with pytest.raises(LocalStateDirFullError, match="other-disk"):
        directory.use(write)
    AttemptDir(HostDir(locations[0], "penstock-count", TOKEN), AttemptId("a1")).leave()
    assert not [path for root in locations for path in root.iterdir()]


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


def test_a_new_driver_removes_what_the_driver_before_it_left(locations: list[Path]) -> None:
    before = HostDir(locations[0], "penstock-count", TOKEN)
    for attempt in ("a1", "a3"):
        (before / attempt).create().mkdir()
    other = locations[0] / "penstock-count-of-another-job"
    (other / "a1").mkdir(parents=True)
    now = AttemptDir(HostDir(locations[0], "penstock-count", TOKEN[::-1]), AttemptId("a2"))
    now.host_dir.create().mkdir()
    now.remove_older_attempts()
    assert names(before.resolve()) == ["a3"]
    assert names(now.job.resolve()) == ["a2"]
    assert names(other) == ["a1"]
    AttemptDir(now.job, AttemptId("a3")).leave()
    assert names(locations[0]) == ["penstock-count-of-another-job"]
