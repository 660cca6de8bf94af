"""State operations that Spark runs on the wrong host are repeated, and only those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.storage_url import StorageUrl
from penstock.errors import CorruptStateError, StateElsewhereError, UnsharedHostError
from penstock.graph.plan import Stage
from penstock.ids import AttemptId, JobKey, StageId
from penstock.job.snapshot.run_on_hosts import run_on_hosts
from penstock.state.local_dir import HostDir
from penstock.task.layout import AttemptLayout, UnsharedHosts
from tests.unit.support import environment, plan_of

STORE = StorageUrl("s3", "bucket", ("jobs", "count"))


class Hosts:
    """Calls functions of subtasks, in this process."""

    def __init__(self) -> None:
        self.work: list[list[Any]] = []

    def run_per_subtask(self, stage: StageId, purpose: str, function: Any, work: Any) -> list[Any]:
        self.work.append(list(work))
        return [function(one, 7) for one in work]


@pytest.fixture
def stage() -> Stage:
    env = environment()
    env.from_collection([1]).print()
    return plan_of(env).stages[0]


def layout(root: Path, unshared: UnsharedHosts | None = None) -> AttemptLayout:
    local = HostDir(root, "count")
    return AttemptLayout(root, local, AttemptId("a1"), STORE, JobKey("count"), unshared=unshared)


def run(hosts: Any, stage: Stage, where: AttemptLayout, function: Any, work: list[Any]) -> Any:
    return run_on_hosts(hosts, stage, where, "store", function, work)


@pytest.mark.parametrize("times", [1, 2])
def test_only_misplaced_subtasks_are_repeated(tmp_path: Path, stage: Stage, times: int) -> None:
    (tmp_path / "a1").mkdir()
    misplaced = ["b"] * times
    hosts = Hosts()

    def store(work: str, _: int) -> str:
        if work in misplaced:
            misplaced.remove(work)
            raise StateElsewhereError(work)
        return work.upper()

    assert run(hosts, stage, layout(tmp_path), store, ["a", "b", "c"]) == ["A", "B", "C"]
    assert hosts.work == [["a", "b", "c"], *[[None, "b", None]] * times]


def test_a_subtask_that_is_always_misplaced_fails(tmp_path: Path, stage: Stage) -> None:
    hosts = Hosts()
    with pytest.raises(UnsharedHostError, match=str(tmp_path / "a1")):
        run(hosts, stage, layout(tmp_path), str, ["a"])
    assert len(hosts.work) == 3


def test_hosts_that_share_nothing_need_no_work_directory(tmp_path: Path, stage: Stage) -> None:
    unshared = UnsharedHosts(HostDir(tmp_path, "files"), STORE / "relay")
    assert run(Hosts(), stage, layout(tmp_path, unshared), lambda w, _: w, ["a"]) == ["a"]


def test_other_errors_are_not_repeated(tmp_path: Path, stage: Stage) -> None:
    (tmp_path / "a1").mkdir()

    def store(work: str, _: int) -> str:
        raise CorruptStateError(work, "why")

    hosts = Hosts()
    with pytest.raises(CorruptStateError):
        run(hosts, stage, layout(tmp_path), store, ["a"])
    assert len(hosts.work) == 1
