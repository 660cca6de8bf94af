"""Submitted jobs when the system refuses something, or something is deleted meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.errors import (
    CorruptJournalError,
    ProcessNotStartedError,
    ProgramFailedError,
    RestartRefusedError,
    UnknownSubmissionError,
)
from penstock.ids import JobKey
from penstock.serve.submission.records import StartRequest, SubmissionDir
from penstock.serve.submission.start_status import ProcessStatus
from tests.unit.cli.job_fixtures import job_directory
from tests.unit.serve.submission.jobs import Server, kill_jobs, serving
from tests.unit.support import eventually

PROCESSES = "penstock.serve.submission.processes"
ENDS = "import sys; sys.exit(3)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def no_processes_left(tmp_path: Path) -> Iterator[None]:
    yield
    kill_jobs(tmp_path)


def ended(server: Server, job: str = "mine") -> SubmissionDir:
    """Submit a program that ends at once."""
    with pytest.raises(ProgramFailedError):
        server.run(ENDS, jobId=job)
    return server.submissions.find(job)


def submit(server: Server, program: str = ENDS, job: str = "mine") -> SubmissionDir:
    added = server.submissions.programs.add("job.py", [program.encode()])
    server.submissions.submit(added, server.spec(jobId=job))
    return server.submissions.find(job)


def refuse(patched: pytest.MonkeyPatch) -> None:
    """Let the system start no process."""

    def popen(*args: Any, **options: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    patched.setattr(f"{PROCESSES}.subprocess.Popen", popen)


def test_a_job_that_was_deleted_meanwhile_is_neither_started_nor_left_in_parts(
    server: Server, tmp_path: Path
) -> None:
    job = ended(server)
    server.submissions.delete(job)
    with pytest.raises(UnknownSubmissionError):
        server.submissions.restart(job, path=None, fresh=True)
    with pytest.raises(UnknownSubmissionError):
        server.submissions.delete(job)
    with pytest.raises(FileNotFoundError):
        job.start(1).write_request(StartRequest(1.0))
    assert list((tmp_path / "uploads" / "jobs").iterdir()) == []


def test_of_a_restart_and_a_deletion_at_once_one_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ended(server)
    is_running = server.submissions.is_running

    def slow(job: SubmissionDir) -> bool:
        time.sleep(0.2)
        return is_running(job)

    monkeypatch.setattr(server.submissions, "is_running", slow)
    deletion = threading.Thread(target=server.submissions.delete, args=(job,))
    deletion.start()
    time.sleep(0.05)
    with pytest.raises(UnknownSubmissionError):
        server.submissions.restart(job, path=None, fresh=True)
    deletion.join()
    assert not job.path.exists()


@pytest.mark.parametrize("what", ["half a record", "no directory", "no starts", "refused"])
def test_a_job_that_cannot_be_started_keeps_no_server_from_starting(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as server:
        path = submit(server).path
        eventually(lambda: not server.submissions.is_running(SubmissionDir(path)))
        for name in ("process.json", "end.json"):
            (path / "starts" / "1" / name).unlink()
    if what == "half a record":
        shutil.rmtree(path / "work")
        (path / "submission.json").unlink()
    elif what == "no directory":
        (path.parent / "README").write_text("x")
        shutil.rmtree(path)
    elif what == "no starts":
        shutil.rmtree(path / "starts")
        (path / "starts").write_text("x")
    else:
        refuse(monkeypatch)
    with serving(tmp_path) as server:
        assert server.recovered == []
        if what in ("half a record", "refused"):
            (job,) = server.submissions.jobs()
            assert server.submissions.status(job).status is ProcessStatus.ENDED
            server.submissions.delete(job)
            assert server.submissions.jobs() == []


def test_a_submission_whose_process_is_refused_is_not_stored(
    server: Server, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        refuse(patched)
        with pytest.raises(ProcessNotStartedError, match="temporarily unavailable"):
            submit(server)
    assert list((tmp_path / "uploads" / "jobs").iterdir()) == []
    ended(server)  # the id is free
    server.submissions.close()
    again = Server(tmp_path)
    assert again.recovered == []
    server.submissions = again.submissions


def test_a_restart_whose_process_is_refused_changes_nothing(server: Server) -> None:
    job = ended(server)
    with pytest.MonkeyPatch.context() as patched:
        refuse(patched)
        with pytest.raises(ProcessNotStartedError):
            server.submissions.restart(job, path=None, fresh=True)
    assert [start.number for start in job.starts] == [1]
    assert server.submissions.restart(job, path=None, fresh=True).number == 2


def test_a_log_that_cannot_be_opened_is_a_process_that_is_not_started(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    added = server.submissions.programs.add("job.py", [b""])
    spec = server.spec(jobId="mine")
    real = os.open
    monkeypatch.setattr(
        f"{PROCESSES}.os.open", lambda *a: full() if str(a[0]).endswith(".log") else real(*a)
    )
    with pytest.raises(ProcessNotStartedError, match="No space left"):
        server.submissions.submit(added, spec)
    assert server.submissions.jobs() == []


def test_a_job_with_a_damaged_journal_is_not_restarted(server: Server, tmp_path: Path) -> None:
    job = ended(server)
    directory: JobDir = job_directory(tmp_path / "checkpoints", "mine")
    directory.storage.replace("journal/000000000001", b"garbage")
    assert directory.key == JobKey("mine")
    with pytest.raises(CorruptJournalError):
        server.submissions.restart(job, path=None, fresh=False)
    assert [start.number for start in job.starts] == [1]


def test_a_driver_without_a_lease_whose_supervisor_was_killed_keeps_its_job(
    server: Server,
) -> None:
    job = submit(server, "import time; print('up', flush=True); time.sleep(600)")
    eventually(lambda: "up" in server.log(job))
    process = job.starts[0].process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: server.submissions.status(job).status is ProcessStatus.LOST)
    assert server.submissions.is_running(job)
    for action in (
        lambda: server.submissions.delete(job),
        lambda: server.submissions.restart(job, path=None, fresh=False),
    ):
        with pytest.raises(RestartRefusedError, match="it is running"):
            action()
    assert server.submissions.suspend(job)
    eventually(lambda: not server.submissions.is_running(job))
    assert not server.submissions.suspend(job)
    server.submissions.delete(job)
