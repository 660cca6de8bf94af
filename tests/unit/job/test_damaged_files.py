"""Damaged files in the job directory, and texts that are not Unicode: no job is affected."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common import Types
from penstock.job.attempt.attempt_starter import RunningAttempt
from penstock.job.job_run import JobRun
from penstock.job.request_server import RequestServer
from penstock.recovery.lease import Lease
from tests.local_paths import local
from tests.unit.job.counting import (
    Program,
    die,
    idle_after,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.job.test_request_server import bad_files

NOT_UTF8 = "caf\udce9"


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class SurrogateError(Exception):
    """An exception with a lone surrogate in its message."""

    def __str__(self) -> str:
        return f"cannot parse {NOT_UTF8}"


class BrokenError(Exception):
    """An exception without a message."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [SurrogateError, BrokenError])
def test_a_job_restarts_whatever_the_message_of_an_exception_is(
    tmp_path: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.testing.scripted_failures.ScriptedError", error)
    program = Program(tmp_path, fails=[30, 60])
    program.run()
    assert program.verdict().is_exactly_once
    found = program.history().exceptions()
    assert [error.__name__ in record.message for record in found] == [True, True]
    assert len(program.history().recoveries()) == 2


def test_a_failure_outside_of_tasks_without_a_message_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.job.stage.region_loop import RegionLoop

    consume = RegionLoop._consume
    failed: list[bool] = []

    def fail_once(self: RegionLoop, *args: object) -> None:
        if not failed:
            failed.append(True)
            raise BrokenError
        consume(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RegionLoop, "_consume", fail_once)
    program = Program(tmp_path)
    program.run()
    assert program.verdict().is_exactly_once
    (record,) = program.history().exceptions()
    assert record.message == "BrokenError, whose message raises ZeroDivisionError"


def test_an_argument_that_is_not_utf_8_is_stored_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["job.py", NOT_UTF8])
    program = Program(tmp_path)
    program.run()
    assert program.verdict().is_exactly_once
    facts = program.dir.read_facts()
    assert facts is not None
    assert facts.args == ["caf\\udce9"]


def test_names_that_are_not_utf_8_are_stored_escaped(tmp_path: Path) -> None:
    program = Program(tmp_path, uid=NOT_UTF8)
    env = program.environment()
    numbers = env.from_collection(list(range(100)), Types.LONG()).name(NOT_UTF8)
    program.count(numbers.set_description(NOT_UTF8))
    env.execute(NOT_UTF8)
    assert program.verdict().is_exactly_once
    facts = program.dir.read_facts()
    assert facts is not None
    assert facts.name == "caf\\udce9"
    assert "caf\\udce9" in [step.name for step in facts.plan]
    assert "caf\\udce9" in [step.uid for step in facts.plan]


INVALID_UTF8 = b'{"name":"\xff","attempt":"\xff","message":"\xff"}\n'


def damage(job: JobDir) -> None:
    """Make everything unreadable that users look at."""
    for path in (local(job.job), local(job.driver), *local(job.path / "history").rglob("*.json*")):
        path.write_bytes(INVALID_UTF8)


def test_a_running_job_does_not_read_what_users_look_at(tmp_path: Path) -> None:
    program = Program(
        tmp_path, idle_after(100), fails=[60], settings={"heartbeat__interval": "5 ms"}
    )
    job = program.launch()
    for _ in range(5):
        damage(program.dir)
    wait_for_records(job, 100)
    damage(program.dir)
    wait_for_lines(program, 100)
    job.cancel()
    assert job.wait_for_end(20)
    assert program.verdict().is_exactly_once


@pytest.mark.parametrize("damage", [damage, lambda job: unreadable(job)], ids=["bytes", "kinds"])
def test_a_driver_starts_whatever_an_older_one_left_for_users(
    tmp_path: Path, damage: Callable[[JobDir], None]
) -> None:
    program = Program(tmp_path, idle_after(50))
    job = program.launch()
    wait_for_lines(program, 50)
    die(job)
    launched.clear()
    damage(program.dir)
    program.script = idle_after(100)
    job = program.launch()
    wait_for_lines(program, 100)
    job.cancel()
    assert job.wait_for_end(20)
    assert program.verdict().is_exactly_once


def unreadable(job: JobDir) -> None:
    """Replace files by a directory, and the history by a link to itself."""
    history = job.path / "history"
    for path in local(history).rglob("*"):
        path.unlink()
    local(history).rmdir()
    local(history).symlink_to(local(history))


def test_a_job_with_bad_files_in_control_serves_requests_and_ends(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(50))
    job = program.launch()
    local(program.dir.control).mkdir(exist_ok=True)
    bad_files(program.dir)
    wait_for_lines(program, 50)
    job.cancel()
    assert job.wait_for_end(20)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (RunningAttempt, "close"),
        (RequestServer, "close"),
        (JobRun, "_log_end"),
        (Lease, "release"),
    ],
)
def test_a_job_ends_whatever_fails_at_its_end(
    tmp_path: Path, where: type, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    job = Program(tmp_path).launch()
    monkeypatch.setattr(where, what, fail)
    assert job.wait_for_end(20)
    assert job.result().result(0)
