from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.checkpoint.storage.journal_entries import JobEnded, JournalState, RecordedStatus
from penstock.client.job_overview import displayed_status, status_of
from penstock.common.job_status import JobStatus
from penstock.recovery.lease import Alive, Dead, DriverStatus, Free, Owner, Silent
from tests.local_paths import local
from tests.unit.cli.job_fixtures import (
    end,
    endless_job,
    job_directory,
    json_of,
    penstock,
    set_driver,
)
from tests.unit.support import eventually

OWNER = Owner("host", "machine", 1, 1, "a1", 1.0)
STARTING = Owner("host", "machine", 1, 1, "a1", 1.0, initializing=True)
OPEN = JournalState()


def ended(status: RecordedStatus) -> JournalState:
    savepoint = "/sp" if status == "STOPPED" else None
    return JournalState(ended=JobEnded("a1", status, 1.0, savepoint))


@pytest.mark.parametrize(
    ("state", "driver", "status", "displayed"),
    [
        (OPEN, Alive(OWNER), JobStatus.RUNNING, "RUNNING"),
        (OPEN, Alive(STARTING), JobStatus.INITIALIZING, "INITIALIZING"),
        (ended("FINISHED"), Alive(STARTING), JobStatus.INITIALIZING, "INITIALIZING"),
        (OPEN, Dead(OWNER, 1.0), JobStatus.SUSPENDED, "DIED"),
        (OPEN, Silent(OWNER, 1.0), JobStatus.SUSPENDED, "DIED"),
        (OPEN, Free(), JobStatus.SUSPENDED, "SUSPENDED"),
        (ended("FINISHED"), Free(), JobStatus.FINISHED, "FINISHED"),
        (ended("CANCELED"), Free(), JobStatus.CANCELED, "CANCELED"),
        (ended("STOPPED"), Free(), JobStatus.FINISHED, "STOPPED"),
        (ended("FAILED"), Dead(OWNER, 1.0), JobStatus.FAILED, "FAILED"),
        (ended("FINISHED"), Alive(OWNER), JobStatus.RUNNING, "RUNNING"),
        (None, Free(), None, "DAMAGED"),
        (None, Alive(OWNER), JobStatus.RUNNING, "RUNNING"),
    ],
)
def test_the_status_of_a_job_follows_from_its_journal_and_its_lease(
    state: JournalState | None, driver: DriverStatus, status: JobStatus | None, displayed: str
) -> None:
    assert status_of(state, driver) is status
    assert displayed_status(state, driver) == displayed


def test_a_running_job_is_listed_with_its_driver_and_its_last_checkpoint(tmp_path: Path) -> None:
    client = endless_job(tmp_path)
    try:
        assert penstock("checkpoint", "trigger", "endless", "--dir", tmp_path).exit_code == 0
        (job,) = json_of(penstock("list", "--dir", tmp_path, "--json"))
        line = penstock("list", "--dir", tmp_path).stdout.splitlines()[1]
    finally:
        end(client)
    assert (job["name"], job["status"], job["attempts"]) == ("endless", "RUNNING", 1)
    assert job["driver"]["pid"] == os.getpid()
    assert job["last_checkpoint"]["id"] == 1
    assert job["last_checkpoint"]["full_bytes"] > 0
    assert job["path"] == str(tmp_path / job["id"])
    assert f":{os.getpid()} " in line
    assert " 1, 0 s ago, " in line or " 1, 1 s ago, " in line
    assert "No jobs in" in penstock("list", "--dir", tmp_path).stdout


def test_a_checkpoint_that_was_deleted_is_listed_as_discarded(tmp_path: Path) -> None:
    client = endless_job(tmp_path)
    try:
        penstock("checkpoint", "trigger", "endless", "--dir", tmp_path)
        (running,) = json_of(penstock("list", "--dir", tmp_path, "--json"))
    finally:
        end(client)
    (ended,) = json_of(penstock("list", "-a", "--dir", tmp_path, "--json"))
    line = penstock("list", "-a", "--dir", tmp_path).stdout.splitlines()[1]
    assert running["last_checkpoint"]["discarded"] is False
    assert (ended["last_checkpoint"]["id"], ended["last_checkpoint"]["discarded"]) == (1, True)
    assert " s ago, discarded " in line


def test_ended_jobs_are_listed_only_with_all(tmp_path: Path) -> None:
    for status in ("FINISHED", "CANCELED", "FAILED"):
        job_directory(tmp_path, status.lower(), ended=JobStatus[status])
    job_directory(tmp_path, "stopped", ended=JobStatus.FINISHED, savepoint="/sp")
    job_directory(tmp_path, "suspended")
    shown = json_of(penstock("list", "--dir", tmp_path, "--json"))
    assert {job["status"] for job in shown} == {"FAILED", "SUSPENDED"}
    assert "3 more have ended: --all shows them." in penstock("list", "--dir", tmp_path).stdout
    assert len(json_of(penstock("list", "-a", "--dir", tmp_path, "--json"))) == 5


def test_a_job_whose_driver_was_killed_has_died(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    set_driver(job, process.pid)
    assert json_of(penstock("list", "--dir", tmp_path, "--json"))[0]["status"] == "RUNNING"
    process.kill()
    eventually(
        lambda: json_of(penstock("list", "--dir", tmp_path, "--json"))[0]["status"] == "DIED"
    )
    process.communicate()


def test_a_driver_is_silent_by_the_heartbeat_timeout_of_the_settings(tmp_path: Path) -> None:
    set_driver(job_directory(tmp_path, "count"), os.getpid(), beat=1_000.0)
    patient = ["-D", "heartbeat.timeout=100000 d"]
    assert "DIED" in penstock("list", "--dir", tmp_path).stdout
    assert "RUNNING" in penstock("list", "--dir", tmp_path, *patient).stdout


def test_a_damaged_journal_does_not_break_the_list(tmp_path: Path) -> None:
    job_directory(tmp_path, "good")
    bad = job_directory(tmp_path, "bad")
    next(local(bad.journal).iterdir()).write_bytes(b"{")
    shown = json_of(penstock("list", "--dir", tmp_path, "--json"))
    assert {job["id"]: job["status"] for job in shown} == {"good": "SUSPENDED", "bad": "DAMAGED"}


def test_the_directory_comes_from_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_directory(tmp_path / "a", "in-a")
    job_directory(tmp_path / "b", "in-b")
    file = tmp_path / "config.yaml"
    file.write_text(f"state.checkpoints.dir: {tmp_path / 'a'}\n")
    define = f"execution.checkpointing.dir={tmp_path / 'b'}"
    monkeypatch.delenv("PENSTOCK_CONF_DIR", raising=False)
    nothing = penstock("list")
    assert nothing.exit_code == 2
    assert "no checkpoint directory is known: give --dir" in nothing.stderr
    assert "in-a" in penstock("list", "-c", file).stdout
    assert "in-b" in penstock("list", "-c", file, "-D", define).stdout
    assert "in-a" in penstock("list", "-D", define, "--dir", tmp_path / "a").stdout
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    assert "in-a" in penstock("list").stdout
