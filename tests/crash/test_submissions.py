"""Submitted jobs: real processes, of servers that come and go."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.storage.journal import Journal
from penstock.errors import (
    DuplicateJobSubmissionError,
    ProgramFailedError,
    RestartRefusedError,
    ServerAlreadyRunningError,
    UnknownSubmissionError,
    UnusableDirectoryError,
)
from penstock.recovery.lease import process_start_time
from penstock.serve.submission.records import StartDir
from penstock.serve.submission.start_status import ProcessStatus, status_of
from tests.unit.serve.submission.jobs import SHOW, Server, kill_jobs, serving
from tests.unit.serve.submission.test_programs import zipped
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


# -- runs ---------------------------------------------------------------------------------------


def test_a_job_runs_detached_in_a_directory_of_its_own_and_its_log_is_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SERVE_TOKEN", "operator-token")
    settings = {"penstock.storage.s3.secret_access_key": "hunter22"}
    arguments = ["--password", "pass4word", "x"]
    job = server.run(SHOW, programArgsList=arguments, flinkConfiguration=settings)
    assert server.await_end(job) == 0
    seen = json.loads((job.work / "seen.json").read_text())
    cmdline = seen.pop("cmdline")
    process = job.starts[0].process
    assert process is not None
    assert seen == {
        "argv": arguments,
        "cwd": str(job.work),
        "sid": process.pid,
        "stdin": "/dev/null",
        "secret": "hunter22",
        "token": None,
    }
    assert "pass4word" not in cmdline
    assert "hunter22" not in cmdline
    assert "seen\n" in server.log(job)
    assert "Job 'show' has finished" in server.log(job)


def test_credentials_are_in_no_record_and_in_no_file_that_others_may_read(server: Server) -> None:
    settings = {"penstock.storage.s3.secret_access_key": "hunter22"}
    arguments = ["--password", "pass4word"]
    job = server.run(SHOW, programArgsList=arguments, flinkConfiguration=settings)
    submission = job.read()
    assert submission is not None
    assert submission.args == ["--password", "***"]
    assert submission.settings["penstock.storage.s3.secret_access_key"] == "***"
    server.await_end(job)
    holders = set()
    for path in server.root.rglob("*"):
        if path.is_file() and any(s in path.read_bytes() for s in (b"hunter22", b"pass4word")):
            holders.add(path.name)
            assert path.name == "seen.json" or stat.S_IMODE(path.stat().st_mode) == 0o600
    assert holders == {"settings.yaml", "arguments.json", "seen.json"}
    assert stat.S_IMODE((server.root / "uploads").stat().st_mode) == 0o700


def test_an_archive_runs_with_its_packages(server: Server) -> None:
    main = SHOW.replace("import json, os, sys", "import json, os, sys\nfrom lib.names import NAME")
    program = zipped(("__main__.py", main.encode()), ("lib/names.py", b"NAME = 'x'"))
    job = server.run(program, "job.zip")
    assert server.await_end(job) == 0
    submission = job.read()
    assert submission is not None
    assert submission.settings["python.files"] == str(job.program)


@pytest.mark.parametrize(
    ("program", "reason", "log"),
    [
        ("print('no job here')", "has ended without starting a job", "no job here"),
        ("1 / 0", "exit code 1", "ZeroDivisionError"),
        ("import sys; sys.exit(7)", "exit code 7", ""),
        ("def (", "exit code 1", "SyntaxError"),
        ("import nothing_of_this_name", "exit code 1", "nothing_of_this_name"),
    ],
)
def test_a_program_that_makes_no_job_fails_with_the_end_of_its_log(
    server: Server, program: str, reason: str, log: str
) -> None:
    with pytest.raises(ProgramFailedError) as failed:
        server.run(program)
    assert reason in str(failed.value)
    assert log in failed.value.log


def test_the_id_of_a_program_that_made_no_job_can_be_used_again(server: Server) -> None:
    with pytest.raises(ProgramFailedError):
        server.run("1 / 0", jobId="mine")
    job = server.run(SHOW, jobId="mine")
    assert server.await_end(job) == 0


def test_a_process_that_cannot_even_begin_has_failed_and_its_id_can_be_used_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", shutil.which("false"))
        with pytest.raises(ProgramFailedError, match="exit code 1"):
            server.run(SHOW, jobId="mine")
        (job,) = server.submissions.jobs()
        assert server.submissions.status(job).status is ProcessStatus.ENDED
    assert server.await_end(server.run(SHOW, jobId="mine")) == 0


def test_a_job_id_is_accepted_once_also_if_the_job_has_ended(server: Server) -> None:
    job = server.count(1000, 0.01, jobId="mine")
    with pytest.raises(DuplicateJobSubmissionError):
        server.run(SHOW, jobId="mine")
    server.submissions.suspend(job)
    server.await_end(job)
    with pytest.raises(DuplicateJobSubmissionError):
        server.run(SHOW, jobId="mine")
    server.submissions.delete(job)
    with pytest.raises(DuplicateJobSubmissionError):
        server.run(SHOW, jobId="mine")
    assert server.submissions.jobs() == []


def test_a_deleted_job_does_not_come_back_when_its_process_exits(server: Server) -> None:
    job = server.count(1, 0, jobId="mine")
    server.await_end(job)
    process = job.starts[0].process
    assert process is not None
    # Its end is on disk before the process has exited, and so before the server notices that.
    server.submissions.delete(job)
    eventually(lambda: process_start_time(process.pid) != process.started)
    assert server.submissions.jobs() == []
    assert not job.path.exists()


def test_of_many_submissions_of_one_id_at_once_one_is_accepted(server: Server) -> None:
    program = server.submissions.programs.add("job.py", [SHOW.encode()])
    outcomes: list[str] = []

    def submit() -> None:
        try:
            server.submissions.submit(program, server.spec(jobId="mine"))
            outcomes.append("accepted")
        except DuplicateJobSubmissionError:
            outcomes.append("refused")

    threads = [threading.Thread(target=submit) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["accepted"] + ["refused"] * 4
    job = server.submissions.find("mine")
    assert server.await_end(job) == 0
    assert len(Journal(server.submissions.job_dir("mine").storage, "mine").state().attempts) == 1


# -- restarts -----------------------------------------------------------------------------------


def test_a_running_job_is_neither_started_again_nor_deleted(server: Server) -> None:
    job = server.count(1000, 0.01)
    with pytest.raises(RestartRefusedError, match="it is running"):
        server.submissions.restart(job, path=None, fresh=True)
    with pytest.raises(RestartRefusedError, match="it is running"):
        server.submissions.delete(job)
    server.submissions.suspend(job)
    server.await_end(job)
    assert not server.submissions.suspend(job)


@pytest.mark.parametrize("job", ["", "..", "../programs", ".new-x", "/etc", "a/b", "\0", "unknown"])
def test_an_id_that_was_not_submitted_never_becomes_a_path(server: Server, job: str) -> None:
    with pytest.raises(UnknownSubmissionError):
        server.submissions.find(job)


# -- servers that come and go -------------------------------------------------------------------


def test_a_second_server_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with serving(tmp_path), pytest.raises(ServerAlreadyRunningError):
        Server(tmp_path)
    with serving(tmp_path):
        pass


def test_a_directory_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uploads").write_text("")
    with pytest.raises(UnusableDirectoryError, match=r"penstock\.serve\.upload-dir"):
        Server(tmp_path)
    (tmp_path / "uploads").unlink()
    (tmp_path / "uploads").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UnusableDirectoryError, match="belongs to user"):
        Server(tmp_path)


def test_a_job_that_was_accepted_and_not_started_is_started_once_by_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as first, monkeypatch.context() as patch:
        # As if the server was killed right after the record was complete.
        patch.setattr(first.submissions._processes, "start", lambda job, start: None)
        program = first.submissions.programs.add("job.py", [SHOW.encode()])
        first.submissions.submit(program, first.spec(jobId="mine"))
    with serving(tmp_path) as second:
        assert second.recovered == ["mine"]
        job = second.submissions.find("mine")
        assert second.await_end(job) == 0
    with serving(tmp_path) as third:
        assert third.recovered == []
        state = Journal(third.submissions.job_dir("mine").storage, "mine").state()
        assert len(state.attempts) == 1


def test_what_a_killed_server_left_of_a_submission_is_no_job(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    half = tmp_path / "uploads" / "jobs" / ".new-half"
    (half / "program").mkdir(parents=True)
    with serving(tmp_path) as server:
        assert server.submissions.jobs() == []
        assert not half.exists()


def test_a_process_with_the_pid_of_a_dead_one_is_not_taken_for_it(server: Server) -> None:
    job = server.count(1, 0)
    server.await_end(job)
    own = job.starts[0].process
    assert own is not None
    start = StartDir(server.root / "2", 2)
    # This test's process has the pid, and another start time.
    recycled = msgspec.structs.replace(own, pid=os.getpid())
    assert start.claim(recycled)
    assert status_of(start).status is ProcessStatus.LOST


def test_a_damaged_record_harms_no_other_job(server: Server) -> None:
    job = server.count(1, 0, jobId="good")
    server.await_end(job)
    bad = server.root / "uploads" / "jobs" / "bad"
    shutil.copytree(job.path, bad)
    (bad / "submission.json").write_bytes(b"{")
    (bad / "starts" / "1" / "end.json").write_bytes(b"\xff")
    (bad / "starts" / "1" / "process.json").write_bytes(b"[]")
    assert [found.job for found in server.submissions.jobs()] == ["bad", "good"]
    assert server.submissions.find("bad").read() is None
    assert server.submissions.status(server.submissions.find("good")).code == 0
