"""Commands that look at a job show what can be read, and say what cannot."""

import os
from pathlib import Path

import pytest

from penstock.checkpoint.event_log import CheckpointEvent, CheckpointEventRecord
from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    ExceptionRecord,
    History,
    OperatorStats,
    Recovery,
)
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.metadata import SubtaskStats
from tests.local_paths import local
from tests.unit.cli.job_fixtures import job_directory, json_of, penstock, set_driver

STATS = SubtaskStats(0.5, 0.25, 0.001, 1.5, 1003.0, 2048, 100, 5000)


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    job = job_directory(tmp_path, "count")
    history = History(job.storage)
    for n in (1, 2):
        history.write(
            CheckpointStats(
                n, "periodic", CheckpointStatus.COMPLETED, "a1", 1000.0, 3.0, 200, 10_000,
                [OperatorStats("src", "Source", [STATS])], str(job.checkpoint_dir(n)), None,
                [CheckpointEventRecord(1000.0, CheckpointEvent.TRIGGERED, None, "periodic")],
            )
        )  # fmt: skip
    history.add_recovery(Recovery("a2", 1, "the driver died", 0.5, 2, 0.25, 0.125, 0.0625, 1040.0))
    history.add_exception(ExceptionRecord(1050.0, "a2", "Count", "boom", "Traceback"))
    set_driver(job, os.getpid())
    return job


def test_damaged_records_are_skipped_and_named(job: JobDir, tmp_path: Path) -> None:
    history = job.path / "history"
    local(history / "000000000001.json").write_bytes(b'{"id":1,"kind":"\xff"}')
    local(history / "exceptions.jsonl").write_bytes(b"[" * 100_000)
    shown = penstock("checkpoints", "count", "--dir", tmp_path)
    assert shown.exit_code == 0
    assert "\n 2  COMPLETED" in shown.stdout
    assert "\n 1  COMPLETED" not in shown.stdout
    assert shown.stderr == (
        "Warning: not shown, because it cannot be read: history/000000000001.json, "
        f"history/exceptions.jsonl, line 1 in {job.path}\n"
    )
    listed = penstock("list", "--dir", tmp_path)
    assert "history/000000000001.json" in listed.stderr
    facts = json_of(penstock("list", "--dir", tmp_path, "--json"))
    assert facts[0]["unreadable"] == ["history/000000000001.json"]


def test_one_damaged_record_is_not_a_missing_one(job: JobDir, tmp_path: Path) -> None:
    local(job.path / "history" / "000000000001.json").write_bytes(b"\xff")
    shown = penstock("checkpoints", "count", "1", "--dir", tmp_path)
    assert shown.exit_code == 1
    assert "Job count has a damaged record of checkpoint 1." in shown.output


@pytest.mark.parametrize("name", ["job.json", "driver.json"])
def test_a_job_without_readable_facts_is_listed_under_its_id(
    job: JobDir, tmp_path: Path, name: str
) -> None:
    local(job.path / name).write_bytes(b'{"name":"\xff","host":"\xff"}')
    listed = penstock("list", "--dir", tmp_path)
    assert listed.exit_code == 0
    assert "count" in listed.stdout
    assert f"cannot be read: {name} in {job.path}" in listed.stderr


@pytest.mark.parametrize(
    "name",
    ["job.json", "driver.json", "history/000000000002.json", "history/recoveries.jsonl",
     "history/exceptions.jsonl"],
)  # fmt: skip
def test_a_flipped_byte_anywhere_breaks_no_command(job: JobDir, tmp_path: Path, name: str) -> None:
    path = job.path / name
    whole = local(path).read_bytes()
    for at in range(0, len(whole), 1 + len(whole) // 30):
        for bit in (0x01, 0x10, 0x80):
            local(path).write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            commands = [["list"], ["checkpoints", str(job.path)]]
            for command in commands:
                result = penstock(*command, "--dir", tmp_path)
                assert isinstance(result.exception, SystemExit | None), (at, bit, result.exception)
    local(path).write_bytes(whole)


def test_job_directories_of_other_users_are_left_out_and_named(
    job: JobDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "journal").mkdir(parents=True)
    listdir, access = os.listdir, os.access

    def refuse(path: Path) -> list[str]:
        if path == other:
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: path != other and access(path, mode))
    listed = penstock("list", "--dir", tmp_path)
    assert listed.exit_code == 0
    assert "count" in listed.stdout
    assert f"cannot be read: other in {tmp_path}" in listed.stderr


def test_a_path_that_is_not_utf_8_is_shown_escaped(tmp_path: Path) -> None:
    directory = tmp_path / "caf\udce9"
    job_directory(directory, "count")
    (facts,) = json_of(penstock("list", "--dir", directory, "--json"))
    assert "caf\\udce9" in facts["path"]
    assert penstock("list", "--dir", directory).exit_code == 0
    assert "caf\\udce9" in penstock("list", "--dir", directory / "none").stdout
