"""The server of requests: it ends whatever it finds, and remembers only what it is serving."""

import logging
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common.live_figures import LiveFigures
from penstock.errors import CorruptJournalError
from penstock.ids import JobKey
from penstock.job.job_run import JobRun
from penstock.job.request_server import RequestServer
from penstock.recovery import control_files
from penstock.recovery.control import Cancel, Checkpoint, Control, Metrics, Savepoint
from penstock.recovery.lease import Lease
from penstock.storage.local_storage import LocalStorage
from tests.local_paths import local


class FakeJob:
    """Counts what is requested of it; savepoints stay pending."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.savepoints: list[Future[Any]] = []

    def cancel(self) -> None:
        self.cancelled.set()

    def trigger_savepoint(self, path: str | None) -> Future[Any]:
        self.savepoints.append(Future())
        return self.savepoints[-1]

    def close_idle_reads(self) -> None:
        """Nothing is read."""

    def trigger_checkpoint(self) -> Future[Any]:
        message = "no such thing"
        raise ZeroDivisionError(message)


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    job = JobDir(tmp_path, JobKey("count"))
    local(job.control).mkdir(parents=True)
    return job


def server_of(job: JobDir, fake: FakeJob) -> RequestServer:
    return RequestServer(Control(job), cast(JobRun, fake), Lease(job, 60.0))


def bad_files(job: JobDir) -> None:
    control = local(job.control)
    (control / "1-utf8.request.json").write_bytes(b'{"request":{"type":"\xff"},"time":1.0}')
    (control / "2-deep.request.json").write_bytes(b"[" * 200_000)
    (control / "3-loop.request.json").symlink_to(control / "3-loop.request.json")
    os.mkfifo(control / "4-pipe.request.json")


@pytest.mark.parametrize("when", ["before the start", "while it runs", "at the end"])
def test_bad_files_neither_stop_the_server_nor_keep_it_from_ending(
    job: JobDir, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.job.request_server._POLL_S", 0.001)
    fake = FakeJob()
    server = server_of(job, fake)
    if when == "before the start":
        bad_files(job)
    server.start()
    if when == "while it runs":
        bad_files(job)
    client = Control(job)
    client.submit(Cancel())
    assert fake.cancelled.wait(10)
    if when == "at the end":
        bad_files(job)
    server.close()
    assert client.pending() == []


def test_a_request_that_fails_in_any_way_is_answered_and_the_next_one_is_served(
    job: JobDir,
) -> None:
    fake = FakeJob()
    server = server_of(job, fake)
    client = Control(job)
    failing, next_ = client.submit(Checkpoint()), client.submit(Cancel())
    server._serve_new()
    answers = [client.answer(failing), client.answer(next_)]
    assert [a is not None and (a.ok, a.message) for a in answers] == [
        (False, "no such thing"),
        (True, "the job is being cancelled"),
    ]


def test_a_directory_that_cannot_be_listed_is_logged_once_and_ends_nothing(
    job: JobDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeJob()
    server = server_of(job, fake)
    Control(job).submit(Savepoint())
    server._serve_new()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        for _ in range(5):
            server._serve_new()
        server.close()
    assert [r.getMessage() for r in caplog.records] == [
        "Requests to this job cannot be read: [Errno 13] Permission denied"
    ]
    server._serve_new()
    assert len(fake.savepoints) == 1, "a savepoint that is being written was requested again"


def test_a_request_is_served_once_however_long_it_takes(job: JobDir) -> None:
    fake = FakeJob()
    server = server_of(job, fake)
    client = Control(job)
    asked = client.submit(Savepoint())
    for _ in range(3):
        server._serve_new()
    assert len(fake.savepoints) == 1
    assert client.answer(asked) is None
    fake.savepoints[0].set_exception(RuntimeError("disk \udc80 full"))
    answer = client.answer(asked)
    assert answer is not None
    assert answer.message == "disk \\udc80 full"


class BrokenError(Exception):
    """An exception without a message."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def test_every_failure_is_answered_without_credentials(job: JobDir) -> None:
    fake = FakeJob()
    server = server_of(job, fake)
    client = Control(job)
    asked = [client.submit(Savepoint()) for _ in range(2)]
    server._serve_new()
    fake.savepoints[0].set_exception(BrokenError())
    fake.savepoints[1].set_exception(ValueError("cannot reach a://b:s3cret@c"))
    answers = [client.answer(id_) for id_ in asked]
    assert [answer and answer.message for answer in answers] == [
        "BrokenError, whose message raises ZeroDivisionError",
        "cannot reach a://b:***@c",
    ]


def test_an_answer_that_cannot_be_written_ends_nothing(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        entry, reason = "journal/7", "it is missing"
        raise CorruptJournalError(entry, reason)

    fake = FakeJob()
    server = server_of(job, fake)
    monkeypatch.setattr(Control, "reply", fail)
    Control(job).submit(Cancel())
    server._serve_new()
    assert fake.cancelled.is_set()
    Control(job).submit(Checkpoint())
    server.close()


def test_a_request_is_read_once_however_long_it_takes(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of(job, FakeJob())
    Control(job).submit(Savepoint())
    read: list[str] = []
    local = control_files._LocalControlFiles
    read_file = local.read

    def count(self: control_files._LocalControlFiles, name: str, longest: int) -> bytes:
        read.append(name)
        return read_file(self, name, longest)

    monkeypatch.setattr(local, "read", count)
    for _ in range(3):
        server._serve_new()
    assert len(read) == 1


def test_requests_that_were_answered_are_forgotten(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "create", lambda s, path, data: s._at(path).write_bytes(data))
    fake = FakeJob()
    fake.live_figures = lambda: LiveFigures(0.0, "1")  # type: ignore[attr-defined]
    server = server_of(job, fake)
    client = Control(job)
    for _ in range(30):
        for _ in range(10):
            client.submit(Metrics())
        server._serve_new()
        assert len(server._served) <= 10
    server._serve_new()
    assert server._served == set()
