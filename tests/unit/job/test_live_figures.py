"""Live figures: written while somebody watches, and never in the way of the job."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import JobDir, jobs_in
from penstock.common import JobClient, Types
from penstock.common.live_figures import LiveFigures
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import FencedError, UserFunctionError
from penstock.ids import JobKey
from penstock.job.figures import live_reporter
from penstock.job.figures.live_reporter import LiveReporter
from penstock.job.job_run import JobRun
from penstock.recovery.control import Answer, Control, Metrics, Request, Watch
from penstock.testing.inline import run_inline
from tests.unit.cli.job_fixtures import end, endless_job
from tests.unit.support import eventually


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_reporter, "_INTERVAL_S", 0.01)


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    job = JobDir(tmp_path, JobKey("count"))
    Path(str(job.path)).mkdir()
    return job


def nobody() -> None:
    """Let the driver own the job."""


class Figures:
    def __init__(self) -> None:
        self.taken = 0

    def __call__(self) -> LiveFigures:
        self.taken += 1
        return LiveFigures(time.time(), "1", job={"taken": self.taken})


def test_nothing_is_written_before_somebody_watches(job: JobDir) -> None:
    reporter = LiveReporter(job, Figures(), nobody)
    reporter.close()
    assert job.read_live() is None


@pytest.mark.usefixtures("fast")
def test_reports_end_with_the_last_watch_and_start_with_the_next(job: JobDir) -> None:
    figures = Figures()
    reporter = LiveReporter(job, figures, nobody)
    reporter.watch(0.2)
    reporter.watch(0.05)
    eventually(lambda: reporter._thread is None)
    taken = figures.taken
    assert taken > 5
    time.sleep(0.05)
    assert figures.taken == taken
    reporter.watch(0.05)
    eventually(lambda: figures.taken > taken)
    reporter.close()
    assert job.read_live() is None


def test_a_watch_is_at_most_an_hour(job: JobDir) -> None:
    reporter = LiveReporter(job, Figures(), nobody)
    assert [reporter.watch(s) for s in (1e9, -1.0)] == [3600.0, 0.0]
    reporter.close()


@pytest.mark.usefixtures("fast")
def test_a_report_that_fails_is_logged_once_and_repeated(
    job: JobDir, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def fail() -> LiveFigures:
        tries.append(1)
        message = "no figures"
        raise ZeroDivisionError(message)

    reporter = LiveReporter(job, fail, nobody)
    reporter.watch(60)
    eventually(lambda: len(tries) > 3)
    reporter.close()
    assert [r.getMessage() for r in caplog.records] == [
        "The live figures of the job cannot be written: no figures"
    ]


@pytest.mark.usefixtures("fast")
def test_a_report_that_hangs_does_not_keep_the_job_from_ending(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reporter, "_CLOSE_S", 0.05)
    begun, released = threading.Event(), threading.Event()

    def hang() -> LiveFigures:
        begun.set()
        released.wait(60)
        return LiveFigures(time.time(), "1")

    reporter = LiveReporter(job, hang, nobody)
    reporter.watch(60)
    assert begun.wait(60)
    started = time.monotonic()
    reporter.close()
    assert time.monotonic() - started < 30
    released.set()


@pytest.mark.usefixtures("fast")
def test_a_driver_that_was_replaced_touches_nothing(job: JobDir) -> None:
    others = LiveFigures(time.time(), "2")
    job.write_live(others)

    def replaced() -> None:
        raise FencedError(job.key, "1", "2")

    reporter = LiveReporter(job, Figures(), replaced)
    reporter.watch(60)
    eventually(lambda: reporter._problem != "")
    reporter.close()
    assert job.read_live() == others


@pytest.mark.parametrize("content", [b"", b"{", b'{"time": "x"}', b"\xff"])
def test_damaged_figures_are_none(job: JobDir, content: bytes) -> None:
    Path(str(job.live)).write_bytes(content)
    assert job.read_live() is None


def test_figures_are_stale_after_three_intervals() -> None:
    figures = LiveFigures(100.0, "1", interval=2.0)
    assert not figures.is_stale(105.9)
    assert figures.is_stale(106.1)
    assert figures.is_stale(93.0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[JobClient]:
    client = endless_job(tmp_path)
    yield client
    end(client)


def request(job: JobDir, request: Request) -> Answer:
    control = Control(job)
    id_ = control.submit(request)
    eventually(lambda: control.answer(id_) is not None)
    answer = control.answer(id_)
    assert answer is not None
    return answer


@pytest.mark.usefixtures("client")
def test_a_watched_job_reports_its_stages_channels_and_driver(tmp_path: Path) -> None:
    (job,) = jobs_in(tmp_path)
    assert job.read_live() is None
    assert request(job, Watch(30.0)) == Answer(True, "reports live figures for 30 s")
    eventually(lambda: job.read_live() is not None)
    live = job.read_live()
    assert live is not None
    assert not live.is_stale(time.time())
    assert live.status == "RUNNING"
    assert live.driver is not None
    assert live.driver.pid == os.getpid()
    assert live.driver.memory_bytes > 1 << 20
    assert live.stages
    assert [len(s.subtasks) for s in live.stages] == [s.parallelism for s in live.stages]
    answer = request(job, Metrics())
    assert answer.figures is not None
    assert [s.name for s in answer.figures.stages] == [s.name for s in live.stages]
    assert answer.figures.time >= live.time


def test_the_report_is_removed_when_the_job_ends(client: JobClient, tmp_path: Path) -> None:
    (job,) = jobs_in(tmp_path)
    request(job, Watch(30.0))
    eventually(lambda: job.read_live() is not None)
    end(client)
    eventually(lambda: job.read_live() is None)


def test_between_two_attempts_no_stage_is_backpressured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = JobRun._close_attempt

    def close_late(run: JobRun) -> None:
        # A loop finds its channel full while the attempt ends.
        for stage in run._monitor.stages.values():
            stage.observe_backpressure(is_blocked=True)
        close(run)

    monkeypatch.setattr(JobRun, "_close_attempt", close_late)
    seen: list[float] = []
    wait = JobRun._record_exception

    def record(run: JobRun, failure: BaseException, reason: str) -> None:
        stages = [stage.figures() for stage in run._monitor.stages.values()]
        seen.extend(s.metrics["isBackPressured"] for stage in stages for s in stage.subtasks)
        wait(run, failure, reason)

    monkeypatch.setattr(JobRun, "_record_exception", record)
    env = run_inline(StreamExecutionEnvironment.get_execution_environment())
    numbers = env.from_collection([1, 0]).map(lambda n: 1 // n, Types.LONG())
    numbers.print()
    with pytest.raises(UserFunctionError):
        env.execute("fails")
    assert seen
    assert set(seen) == {0}
