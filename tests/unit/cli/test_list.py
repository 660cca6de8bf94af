from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.checkpoint.journal import EndStatus, JobEnded, JournalState
from penstock.cli.overview import Status, status_of
from penstock.recovery.lease import Alive, Dead, Free, Owner, Silent, Standing
from tests.unit.cli.jobs_by_hand import (
    driven_by,
    end,
    endless_job,
    eventually,
    job_by_hand,
    json_of,
    penstock,
)

OWNER = Owner("host", "machine", 1, 1, "a1", 1.0)
OPEN = JournalState()


def ended(status: EndStatus) -> JournalState:
    return JournalState(ended=JobEnded("a1", status, 1.0))


@pytest.mark.parametrize(
    ("state", "found", "expected"),
    [
        (OPEN, Alive(OWNER), Status.RUNNING),
        (OPEN, Dead(OWNER, 1.0), Status.DIED),
        (OPEN, Silent(OWNER, 1.0), Status.DIED),
        (OPEN, Free(), Status.SUSPENDED),
        (ended(EndStatus.FINISHED), Free(), Status.FINISHED),
        (ended(EndStatus.CANCELED), Free(), Status.CANCELED),
        (ended(EndStatus.STOPPED), Free(), Status.STOPPED),
        (ended(EndStatus.FAILED), Dead(OWNER, 1.0), Status.FAILED),
        (ended(EndStatus.FINISHED), Alive(OWNER), Status.RUNNING),
        (None, Free(), Status.DAMAGED),
        (None, Alive(OWNER), Status.RUNNING),
    ],
)
def test_a_job_stands_by_its_journal_and_its_lease(
    state: JournalState | None, found: Standing, expected: Status
) -> None:
    assert status_of(state, found) is expected


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
    assert "no jobs in" in penstock("list", "--dir", tmp_path).stdout


def test_jobs_that_are_over_are_listed_only_when_asked_for(tmp_path: Path) -> None:
    for status in EndStatus:
        job_by_hand(tmp_path, status.value.lower(), ended=status)
    job_by_hand(tmp_path, "suspended")
    shown = json_of(penstock("list", "--dir", tmp_path, "--json"))
    assert {job["status"] for job in shown} == {"FAILED", "SUSPENDED"}
    assert "3 more that are over: --all shows them" in penstock("list", "--dir", tmp_path).stdout
    assert len(json_of(penstock("list", "-a", "--dir", tmp_path, "--json"))) == 5


def test_a_job_whose_driver_was_killed_has_died(tmp_path: Path) -> None:
    job = job_by_hand(tmp_path, "count")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    driven_by(job, process.pid)
    assert json_of(penstock("list", "--dir", tmp_path, "--json"))[0]["status"] == "RUNNING"
    process.kill()
    eventually(
        lambda: json_of(penstock("list", "--dir", tmp_path, "--json"))[0]["status"] == "DIED"
    )
    process.communicate()


def test_a_driver_is_silent_by_the_heartbeat_timeout_of_the_settings(tmp_path: Path) -> None:
    driven_by(job_by_hand(tmp_path, "count"), os.getpid(), beat=1_000.0)
    patient = ["-D", "heartbeat.timeout=100000 d"]
    assert "DIED" in penstock("list", "--dir", tmp_path).stdout
    assert "RUNNING" in penstock("list", "--dir", tmp_path, *patient).stdout


def test_a_damaged_journal_spoils_no_list(tmp_path: Path) -> None:
    job_by_hand(tmp_path, "good")
    bad = job_by_hand(tmp_path, "bad")
    next(bad.journal.iterdir()).write_bytes(b"{")
    shown = json_of(penstock("list", "--dir", tmp_path, "--json"))
    assert {job["id"]: job["status"] for job in shown} == {"good": "SUSPENDED", "bad": "DAMAGED"}


def test_the_directory_comes_from_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_by_hand(tmp_path / "a", "in-a")
    job_by_hand(tmp_path / "b", "in-b")
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
