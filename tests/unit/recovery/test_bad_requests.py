"""Files in `control` that are no requests: each is rejected alone, and nothing else is affected."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.ids import JobKey
from penstock.recovery.control import Answer, Cancel, Checkpoint, Control
from penstock.recovery.control_files import QUARANTINE, control_files
from penstock.storage.local_storage import LocalStorage
from tests.local_paths import local

BAD = "00000000000000000001-bad"
DONE = Answer(True, "done")


def write(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "invalid UTF-8": write(b'{"request":{"type":"Savepoint","path":"\xff"},"time":1.0}'),
    "deep nesting": write(b'{"x":' + b"[" * 200_000),
    "empty": write(b""),
    "torn": write(b'{"request":{"type":"Sa'),
    "a lone surrogate": write(b'{"request":{"type":"Savepoint","path":"\\ud800"},"time":1.0}'),
    "an unknown request": write(b'{"request":{"type":"Rescale"},"time":1.0}'),
    "too large": write(b" " * (2 << 20)),
    "symlink loop": lambda path: path.symlink_to(path),
    "link to another file": lambda path: path.symlink_to("/etc/hostname"),
    "directory": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
}


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    job = JobDir(tmp_path, JobKey("count"))
    local(job.control).mkdir(parents=True)
    return job


@pytest.mark.parametrize("make", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_rejected_once_and_other_requests_are_served(
    job: JobDir, make: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    make(local(job.control / f"{BAD}.request.json"))
    driver = Control(job)
    good = Control(job).submit(Cancel())
    with caplog.at_level(logging.WARNING, "penstock.recovery"):
        assert driver.pending() == [(good, Cancel())]
        assert driver.pending() == [(good, Cancel())]
    assert [BAD in record.getMessage() for record in caplog.records] == [True]
    rejected = Control(job).answer(BAD)
    assert rejected is not None
    assert "cannot read the request" in rejected.message
    assert [path.name for path in local(job.control / "quarantine").iterdir()] == [
        f"{BAD}.request.json"
    ]


def test_an_unreadable_file_is_rejected(job: JobDir, monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control(job)
    asked = control.submit(Cancel())
    opened = os.open

    def refuse(path: object, *args: int) -> int:
        if str(path).endswith(".request.json"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr("penstock.recovery.control_files.os.open", refuse)
        assert control.pending() == []
    answer = control.answer(asked)
    assert answer is not None
    assert "Permission denied" in answer.message


def test_a_bad_file_that_cannot_be_moved_is_logged_once(
    job: JobDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    local(job.control / f"{BAD}.request.json").write_bytes(b"\xff")
    monkeypatch.setattr(Path, "rename", refuse)
    monkeypatch.setattr(LocalStorage, "create", refuse)
    control = Control(job)
    for _ in range(3):
        assert control.pending() == []
    assert sum("cannot be read" in record.getMessage() for record in caplog.records) == 1


def test_the_quarantine_keeps_the_newest_files(job: JobDir) -> None:
    control = Control(job)
    for n in range(40):
        local(job.control / f"{n:020d}-x.request.json").write_bytes(b"\xff")
    assert control.pending() == []
    kept = sorted(path.name for path in local(job.control / "quarantine").iterdir())
    assert kept == [f"{n:020d}-x.request.json" for n in range(24, 40)]


def test_files_in_subdirectories_are_no_requests(job: JobDir) -> None:
    below = job.control / "quarantine"
    local(below).mkdir()
    local(below / f"{BAD}.request.json").write_bytes(b"\xff")
    control = Control(job)
    assert control.pending() == []
    assert control.reject_abandoned() == []


def test_an_answer_may_contain_any_text(job: JobDir) -> None:
    control = Control(job)
    asked = control.submit(Checkpoint())
    assert control.reply(asked, Answer(False, "bad \udc80 text"))
    answer = control.answer(asked)
    assert answer is not None
    assert answer.message == "bad \\udc80 text"


def test_a_damaged_answer_is_an_answer(job: JobDir) -> None:
    control = Control(job)
    asked = control.submit(Checkpoint())
    control.reply(asked, DONE)
    local(job.control / f"{asked}.answer.json").write_bytes(
        b'{"answer":{"ok":true,"message":"\xff"}}'
    )
    answer = control.answer(asked)
    assert answer is not None
    assert not answer.ok
    assert "cannot be read" in answer.message


# -- bounded growth -----------------------------------------------------------------------------


def test_ten_thousand_requests_leave_a_bounded_number_of_files(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: set[str] = set()
    monkeypatch.setattr(LocalStorage, "create", lambda _, path, data: files.add(path))
    monkeypatch.setattr(LocalStorage, "delete", lambda _, path: files.discard(path))
    now = [0.0]
    control = Control(job, lambda: now[0])
    for _ in range(10_000):
        now[0] += 0.1
        control.reply(control.submit(Cancel()), DONE)
    assert len(files) == 1000
    assert control._answers is not None
    assert len(control._answers) == 1000


def test_a_reply_does_not_read_earlier_answers(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(job)
    for _ in range(3):
        control.reply(control.submit(Cancel()), DONE)
    asked = control.submit(Cancel())
    read: list[object] = []
    monkeypatch.setattr(LocalStorage, "read", lambda _, path: read.append(path))
    monkeypatch.setattr(os, "listdir", read.append)
    control.reply(asked, DONE)
    assert read == []


def test_answers_of_an_older_driver_are_deleted_an_hour_later(job: JobDir) -> None:
    now = [0.0]
    old = Control(job, lambda: now[0])
    asked = old.submit(Cancel())
    old.reply(asked, DONE)
    new = Control(job, lambda: now[0])
    new.reply(new.submit(Cancel()), DONE)
    assert new.answer(asked) == DONE
    now[0] = 3601.0
    new.reply(new.submit(Cancel()), DONE)
    assert new.answer(asked) is None


def test_a_quarantine_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere, control = tmp_path / "elsewhere", tmp_path / "control"
    elsewhere.mkdir()
    control.mkdir()
    for number in range(40):
        (elsewhere / f"{number}.txt").touch()
    (control / QUARANTINE).symlink_to(elsewhere)
    (control / "1.request.json").write_text("x")
    control_files(control).quarantine("1.request.json")
    assert len(list(elsewhere.iterdir())) == 40
