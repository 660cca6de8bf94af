"""Submitted jobs outlive what is killed: the server, the supervisor, the driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import RestartRefusedError
from penstock.serve.submission.start_status import ProcessStatus
from tests.unit.serve.submission.jobs import SHOW, Server, counted, kill_jobs, serving
from tests.unit.support import eventually

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def no_processes_left(tmp_path: Path) -> Iterator[None]:
    yield
    kill_jobs(tmp_path)


def test_a_stopped_job_is_started_again_from_its_savepoint(server: Server) -> None:
    job = server.count(1000, 0.002)
    path = server.stop(job)
    assert 0 < len(counted(server.root)) < 1000
    start = server.submissions.restart(job, path=None, fresh=False)
    server.submissions.await_job(job, start)
    assert start.number == 2
    assert (start.request.restore_path if start.request else None) == path
    assert server.await_end(job) == 0, server.log(job)
    assert f"restores {path}" in server.log(job)
    assert len(counted(server.root)) == len(set(counted(server.root))) == 1000


def test_a_suspended_job_resumes_and_the_logs_of_old_starts_are_deleted(tmp_path: Path) -> None:
    with serving(tmp_path, retained_starts=2) as server:
        job = server.count(2000, 0.002)
        for _ in range(2):
            assert server.submissions.suspend(job)
            assert server.await_end(job) == 143
            start = server.submissions.restart(job, path=None, fresh=False)
            server.submissions.await_job(job, start)
        assert [start.number for start in job.starts] == [2, 3]
        assert server.await_end(job) == 0
        with pytest.raises(RestartRefusedError):
            server.submissions.restart(job, path=None, fresh=False)


def test_the_next_server_finds_a_running_job_and_starts_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        job = first.count(1000, 0.003)
        process = job.starts[0].process
    with serving(tmp_path) as second:
        assert second.recovered == []
        (found,) = second.submissions.jobs()
        assert second.submissions.status(found).status is ProcessStatus.RUNNING
        assert found.starts[0].process == process
        assert second.await_end(found) == 0
        assert "has finished" in second.log(found)


def test_two_processes_for_one_start_run_the_job_once(server: Server) -> None:
    """A killed server may have started the process that the next one starts again."""
    program = server.submissions.programs.add("job.py", [SHOW.encode()])
    start = server.submissions.submit(program, server.spec(jobId="mine"))
    job = server.submissions.find("mine")
    for _ in range(3):
        server.submissions._processes.start(job, start)
    assert server.await_end(job) == 0
    assert start.log.read_text().splitlines().count("seen") == 1


def test_a_killed_process_is_shown_as_lost_and_its_driver_goes_on(server: Server) -> None:
    job = server.count(1000, 0.003)
    process = job.starts[0].process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: server.submissions.status(job).status is ProcessStatus.LOST)
    assert server.submissions.is_running(job)
    with pytest.raises(RestartRefusedError, match="it is running"):
        server.submissions.restart(job, path=None, fresh=False)
    eventually(lambda: not server.submissions.is_running(job))
    assert "has finished" in server.log(job)


def test_a_killed_driver_is_started_again_by_its_supervisor(server: Server) -> None:
    job = server.count(1500, 0.002)
    process = job.starts[0].process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    time.sleep(0.3)
    os.kill(int(children[0]), signal.SIGKILL)
    assert server.await_end(job) == 0, server.log(job)
    assert "driver died (signal 9), attempt 2" in server.log(job)
    assert len(counted(server.root)) == len(set(counted(server.root))) == 1500


def test_a_submission_does_not_need_the_uploaded_program_any_more(server: Server) -> None:
    job = server.count(1000, 0.003)
    (program,) = server.submissions.programs.list()
    server.submissions.programs.delete(program.id)
    server.stop(job)
    start = server.submissions.restart(job, path=None, fresh=False)
    server.submissions.await_job(job, start)
    server.submissions.suspend(job)
    server.await_end(job)


def test_a_new_job_starts_from_the_savepoint_of_another_one(server: Server) -> None:
    """As Flink's clients upgrade a program: another upload, another job id."""
    path = server.stop(server.count(1000, 0.002))
    assert 0 < len(counted(server.root)) < 1000
    job = server.count(1000, 0.002, savepointPath=path, jobId="upgraded")
    assert server.await_end(job) == 0, server.log(job)
    assert f"restores {path}" in server.log(job)
    assert len(counted(server.root)) == len(set(counted(server.root))) == 1000
