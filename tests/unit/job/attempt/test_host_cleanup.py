"""Local state on other hosts is removed at the end of a job."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.ids import AttemptId, JobKey, StageId
from penstock.job.attempt import host_cleanup
from penstock.job.attempt.host_cleanup import HostCleanup
from penstock.job.reports import MicroBatchReport
from penstock.job.submitter import MicroBatchLostError, R, W
from penstock.state.local_dir import LOCAL_DIR_VARIABLE, HostDir
from penstock.task.layout import AttemptLayout
from penstock.task.messages import SubtaskLocation
from penstock.testing.inline import InlineSubmitter
from tests.unit.job.counting import Program

HOSTS = ("node-1", "node-2")


class TwoHosts(InlineSubmitter):
    """Calls functions on two hosts in turn, which differ in their environment."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__((), {})
        self._root = root
        self._monkeypatch = monkeypatch
        self.calls = 0

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        self.calls += 1
        made: list[R] = []
        with self._monkeypatch.context() as patch:
            for i, one in enumerate(work):
                patch.setenv(LOCAL_DIR_VARIABLE, str(self._root / HOSTS[i % 2]))
                made += super().run_per_subtask(stage, purpose, function, [one])
        return made


class Dead(InlineSubmitter):
    """An engine that does not respond, or only with an error."""

    def __init__(self, answer: threading.Event) -> None:
        super().__init__((), {})
        self._answer = answer

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        self._answer.wait()
        message = "cancelled"
        raise MicroBatchLostError(message)


class Attempt:
    """An attempt of the counting program, with state on two hosts and on the driver's."""

    def __init__(
        self, root: Path, submitter: InlineSubmitter, *, is_restored: bool = False
    ) -> None:
        self.layout = AttemptLayout(
            root / "work",
            HostDir(root / "driver", "penstock-count"),
            AttemptId("a2"),
            root / "durable",
            JobKey("count"),
        )
        for host in ("driver", *HOSTS):
            for attempt in ("a1", "a2", "a3"):
                (root / host / "penstock-count" / attempt / "count" / "0").mkdir(parents=True)
        plan = Program(root).build()._plan("count")
        self.cleanup = HostCleanup(plan, self.layout, submitter, is_restored=is_restored)
        self.seen: list[MicroBatchReport] = []
        self._report = self.cleanup.seeing(lambda report, _: self.seen.append(report))

    def ran_on(self, *locations: SubtaskLocation | None) -> None:
        report = MicroBatchReport(1, "count", 1, 1, 0.0, 0.0, 0.0, 1, 1, locations=locations)
        self._report(report, {})

    @property
    def location(self) -> SubtaskLocation:
        """The driver's own host."""
        return SubtaskLocation(socket.gethostname(), str(self.layout.local.resolve()))


def left(root: Path, host: str) -> list[str]:
    return sorted(path.name for path in (root / host / "penstock-count").iterdir())


def test_hosts_on_which_subtasks_ran_are_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitter = TwoHosts(tmp_path, monkeypatch)
    attempt = Attempt(tmp_path, submitter)
    attempt.ran_on(attempt.location, SubtaskLocation("node-2", "/elsewhere"))
    attempt.cleanup.run(is_over=True)
    assert submitter.calls == 1
    assert [left(tmp_path, host) for host in HOSTS] == [["a3"], ["a3"]]
    assert left(tmp_path, "driver") == ["a1", "a2", "a3"], "the driver cleans up its own host"
    assert len(attempt.seen) == 1


def test_a_job_on_the_drivers_host_alone_runs_no_cleanup_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitter = TwoHosts(tmp_path, monkeypatch)
    attempt = Attempt(tmp_path, submitter)
    attempt.ran_on(attempt.location, None)
    attempt.cleanup.run(is_over=True)
    assert submitter.calls == 0


def test_a_failed_attempt_leaves_cleanup_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitter = TwoHosts(tmp_path, monkeypatch)
    attempt = Attempt(tmp_path, submitter, is_restored=True)
    attempt.ran_on(SubtaskLocation("node-2", "/elsewhere"))
    attempt.cleanup.run(is_over=False)
    assert submitter.calls == 0


def test_hosts_of_a_restored_job_without_micro_batches_are_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(tmp_path, TwoHosts(tmp_path, monkeypatch), is_restored=True)
    attempt.cleanup.run(is_over=True)
    assert [left(tmp_path, host) for host in HOSTS] == [["a3"], ["a3"]]


def test_an_unresponsive_engine_does_not_block_the_end_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_cleanup, "_TIMEOUT_S", 0.05)
    answer = threading.Event()
    attempt = Attempt(tmp_path, Dead(answer))
    attempt.ran_on(SubtaskLocation("node-2", "/elsewhere"))
    attempt.cleanup.run(is_over=True)
    answer.set()
    attempt.cleanup.run(is_over=True)
    assert left(tmp_path, "node-2") == ["a1", "a2", "a3"]
