from __future__ import annotations

import time
from pathlib import Path

from penstock.checkpoint.storage.job_dir import jobs_in
from penstock.recovery.control import Control
from penstock.serve.jobs.cached_job import CachedJob, JobView
from penstock.serve.jobs.live import LiveWatch
from tests.unit.cli.job_fixtures import end, endless_job, job_directory, set_driver
from tests.unit.support import eventually


def view(directory: Path) -> JobView:
    (job,) = jobs_in(directory)
    read = CachedJob(job, 50.0).read(time.time())
    assert read is not None
    return read


def test_the_driver_is_asked_to_report_and_its_figures_are_fresh(tmp_path: Path) -> None:
    client = endless_job(tmp_path)
    try:
        eventually(lambda: view(tmp_path).overview.status == "RUNNING")
        live = LiveWatch().of(view(tmp_path), wait_s=10)
    finally:
        end(client)
    assert not live.is_stale
    assert live.figures is not None
    assert [stage.stage for stage in live.figures.stages] == [0, 1]


def test_a_driver_is_asked_again_only_when_its_watch_runs_out(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count")
    set_driver(job, pid=1)
    now = [0.0]
    watch = LiveWatch(monotonic=lambda: now[0])
    for now[0] in (0.0, 1.0, 19.0, 21.0, 22.0):
        assert watch.of(view(tmp_path)).is_stale
    assert len(Control(job).pending()) == 2


def test_a_job_without_a_driver_is_not_asked_and_is_stale(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count")
    live = LiveWatch().of(view(tmp_path), wait_s=10)
    assert (live.figures, live.is_stale) == (None, True)
    assert Control(job).pending() == []


def test_a_driver_that_does_not_report_is_waited_for_only_once(tmp_path: Path) -> None:
    set_driver(job_directory(tmp_path, "count"), pid=1)
    now, waited = [0.0], [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        waited[0] += seconds

    watch = LiveWatch(monotonic=lambda: now[0], pause=pause)
    for _ in range(100):
        assert watch.of(view(tmp_path), wait_s=1.5).is_stale
        now[0] += 1.0
    assert 1.5 <= waited[0] < 1.6
