from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.common import JobClient, JobStatus
from penstock.recovery.control import Control, Stop
from penstock.savepoint.directory import read_savepoint_metadata
from penstock.testing.inline import InlineSubmitter
from tests.unit.cli.job_fixtures import (
    end,
    endless_job,
    job_directory,
    json_of,
    penstock,
    set_driver,
)
from tests.unit.support import eventually


@pytest.fixture
def client(tmp_path: Path) -> Iterator[JobClient]:
    client = endless_job(tmp_path)
    yield client
    end(client)


def test_checkpoints_and_savepoints_are_taken_while_the_job_continues(
    client: JobClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = ("--dir", tmp_path)
    checkpoint = penstock("checkpoint", "trigger", "endless", *there)
    assert checkpoint.exit_code == 0
    message, path = checkpoint.stdout.splitlines()
    assert message.startswith("checkpoint 1 completed in ")
    assert (Path(path).name, (Path(path) / "_metadata").is_file()) == ("chk-1", True)
    outcome = json_of(penstock("savepoint", "endless", "mine", *there, "--json"))
    assert outcome["ok"] is True
    assert Path(outcome["path"]).parent == tmp_path / "mine"
    assert read_savepoint_metadata(Path(outcome["path"])).checkpoint == 2
    no_place = penstock("savepoint", "endless", *there)
    assert (no_place.exit_code, no_place.stdout) == (1, "")
    assert "there is no directory for the savepoint" in no_place.stderr
    assert client.get_job_status().result() is JobStatus.RUNNING


@pytest.mark.parametrize("drain", [(), ("--drain",)])
def test_a_stopped_job_has_ended_when_the_command_returns(
    client: JobClient, tmp_path: Path, drain: tuple[str, ...]
) -> None:
    stopped = penstock("stop", "endless", *drain, "-p", tmp_path / "mine", "--dir", tmp_path)
    assert stopped.exit_code == 0, stopped.output
    message, path = stopped.stdout.splitlines()
    assert message == "Job 'endless' is STOPPED."
    program = shlex.quote(sys.argv[0])
    resumes = "with your other options and arguments resumes it"
    assert stopped.stderr == f"Next: penstock run -s {path} {program} {resumes}.\n"
    assert {operator.ended for operator in read_savepoint_metadata(Path(path)).operators} == {
        bool(drain)
    }
    again = penstock("stop", "endless", "--dir", tmp_path)
    assert again.exit_code == 1
    assert "No driver is running job 'endless': its status is STOPPED." in again.stderr


class SlowEngine:
    """Spark, which takes its time to start."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.starts, self.may_start = threading.Event(), threading.Event()

    def __call__(self, *parts: Any) -> InlineSubmitter:
        self.starts.set()
        assert self.may_start.wait(60)
        if self.failure is not None:
            raise self.failure
        return InlineSubmitter(*parts)


def requested(tmp_path: Path) -> list[str]:
    return [p.name for p in tmp_path.glob("*/control/*.request.json")]


def test_a_request_waits_until_the_job_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SlowEngine()
    monkeypatch.setattr("penstock.testing.inline.InlineSubmitter", engine)
    with ThreadPoolExecutor(2) as threads:
        job = threads.submit(endless_job, tmp_path)
        try:
            assert engine.starts.wait(60)
            (listed,) = json_of(penstock("list", "--dir", tmp_path, "--json"))
            words = ("stop", "endless", "-p", tmp_path / "mine", "--dir", tmp_path, "--json")
            stop = threads.submit(penstock, *words)
            eventually(lambda: bool(requested(tmp_path)) or stop.done())
        finally:
            engine.may_start.set()
        job.result()
        outcome = json_of(stop.result())
    assert listed["status"] == "INITIALIZING"
    assert (outcome["ok"], outcome["status"]) == (True, "STOPPED")


def test_a_request_to_a_job_that_fails_to_start_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SlowEngine(OSError("no Java"))
    monkeypatch.setattr("penstock.testing.inline.InlineSubmitter", engine)
    with ThreadPoolExecutor(2) as threads:
        job = threads.submit(endless_job, tmp_path)
        try:
            assert engine.starts.wait(60)
            stop = threads.submit(penstock, "stop", "endless", "--dir", tmp_path)
            eventually(lambda: bool(requested(tmp_path)) or stop.done())
        finally:
            engine.may_start.set()
        with pytest.raises(OSError, match="no Java"):
            job.result()
        rejected = stop.result()
    assert (rejected.exit_code, rejected.stderr) == (1, "Error: the job failed to start\n")


def test_a_job_is_cancelled_by_the_path_of_its_directory(client: JobClient, tmp_path: Path) -> None:
    (place,) = (path for path in tmp_path.iterdir() if (path / "journal").is_dir())
    outcome = json_of(penstock("cancel", place, "--json"))
    assert (outcome["status"], outcome["path"]) == ("CANCELED", None)
    eventually(lambda: client.get_job_execution_result().done())


def test_a_checkpoint_that_outlives_cancellation_is_named(tmp_path: Path) -> None:
    retention = "RETAIN_ON_CANCELLATION"
    client = endless_job(
        tmp_path, execution__checkpointing__externalized_checkpoint_retention=retention
    )
    try:
        path = json_of(penstock("checkpoint", "trigger", "endless", "--dir", tmp_path, "--json"))
        assert (
            json_of(penstock("cancel", "endless", "--dir", tmp_path, "--json"))["path"]
            == (path["path"])
        )
    finally:
        end(client)


def test_a_cancelled_job_does_not_name_the_checkpoint_that_it_was_restored_from(
    tmp_path: Path,
) -> None:
    retention = "RETAIN_ON_CANCELLATION"
    client = endless_job(
        tmp_path, execution__checkpointing__externalized_checkpoint_retention=retention
    )
    try:
        penstock("checkpoint", "trigger", "endless", "--dir", tmp_path)
        older = json_of(penstock("cancel", "endless", "--dir", tmp_path, "--json"))["path"]
    finally:
        end(client)
    client = endless_job(tmp_path, execution__state_recovery__path=older)
    try:
        cancelled = penstock("cancel", "endless", "--dir", tmp_path)
    finally:
        end(client)
    assert cancelled.stdout == "Job 'endless' is CANCELED and retains no checkpoint.\n"
    assert cancelled.stderr == f"Next: the same command restores {older} again.\n"


# -- no answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [("stop",), ("cancel",), ("savepoint",), ("checkpoint", "trigger")]
)
def test_no_request_is_sent_to_a_job_without_a_driver(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    job = job_directory(tmp_path, "count", ended=JobStatus.FINISHED)
    result = penstock(*command, "count", "--dir", tmp_path)
    assert result.exit_code == 1
    assert "No driver is running job 'count': its status is FINISHED." in result.stderr
    assert Control(job).pending() == []


def test_a_silent_driver_is_named(tmp_path: Path) -> None:
    set_driver(job_directory(tmp_path, "count"), os.getpid(), beat=time.time() - 3700)
    result = penstock("cancel", "count", "--dir", tmp_path)
    assert result.exit_code == 1
    assert f"its driver (process {os.getpid()} on " in result.stderr
    assert "is silent, and its last heartbeat was 1 h ago." in result.stderr


def test_a_request_times_out(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count")
    set_driver(job, os.getpid())
    result = penstock("stop", "count", "--dir", tmp_path, "--timeout", "0.1")
    assert result.exit_code == 1
    assert "No answer from job 'count' within 100 ms; the job may still" in result.stderr
    assert [request for _, request in Control(job).pending()] == [Stop()]


def test_a_driver_that_dies_instead_of_answering_is_noticed(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    set_driver(job, process.pid)
    killer = threading.Timer(0.2, process.kill)
    killer.start()
    result = penstock("savepoint", "count", "--dir", tmp_path)
    process.communicate()
    assert result.exit_code == 1
    assert f"its driver (process {process.pid} on " in result.stderr
    assert "Check the job before you send the request again." in result.stderr


# -- which job ----------------------------------------------------------------------------------


def test_a_job_is_named_by_id_name_or_path(tmp_path: Path) -> None:
    job_directory(tmp_path, "a", name="same")
    job_directory(tmp_path, "b", name="same")
    job_directory(tmp_path, "c", name="only")
    for wanted in ("a", "only", tmp_path / "b"):
        assert "its status is SUSPENDED" in penstock("cancel", wanted, "--dir", tmp_path).stderr
    ambiguous, unknown = (penstock("cancel", job, "--dir", tmp_path) for job in ("same", "other"))
    assert (ambiguous.exit_code, unknown.exit_code) == (2, 2)
    assert "give the id of one: a, b" in ambiguous.stderr
    assert "no job 'other' in" in unknown.stderr


# -- disposing of savepoints --------------------------------------------------------------------


def test_a_savepoint_is_disposed_of_and_nothing_else_is(client: JobClient, tmp_path: Path) -> None:
    path = client.trigger_savepoint(str(tmp_path / "mine")).result()
    assert len(list(tmp_path.glob("*/savepoints/*"))) == 1
    output = penstock("savepoint", "--dispose", path).stdout
    assert output == f"The savepoint is deleted.\n{path}\n"
    assert not Path(path).exists()
    assert list(tmp_path.glob("*/savepoints/*")) == []
    result = penstock("savepoint", "--dispose", tmp_path)
    assert result.exit_code == 1
    assert "is not a savepoint: it has no _metadata" in result.stderr


def test_a_savepoint_is_either_taken_or_disposed_of(tmp_path: Path) -> None:
    assert penstock("savepoint").exit_code == 2
    assert penstock("savepoint", "count", "--dispose", tmp_path).exit_code == 2
    elsewhere = penstock("savepoint", "--dispose", "ftp://host/there")
    assert elsewhere.exit_code == 2
    assert "or a place in a store" in elsewhere.stderr.replace("\n", " ")
