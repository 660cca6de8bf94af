"""What a job logs at its start and at its end."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.errors import DifferentProgramError, NonRestoredStateError
from tests.unit.job.counting import (
    Program,
    bursts,
    die,
    idle_after,
    launched,
    wait_for_lines,
)
from tests.unit.support import eventually

ME = shlex.quote(sys.argv[0])


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "penstock.job")
    return caplog


def lines(said: pytest.LogCaptureFixture, level: int) -> list[str]:
    records = [r for r in said.records if r.levelno == level and r.name == "penstock.job"]
    said.clear()
    return [r.getMessage() for r in records if "Job 'count'" in r.getMessage()]


def test_a_job_says_where_it_is_and_that_it_starts_from_scratch_again(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    program = Program(tmp_path, bursts(10))
    program.run()
    job = f"Job 'count' (id {program.dir.key}, directory {program.dir.path})"
    end = "Job 'count' has finished. Next: the same command starts it from scratch"
    assert lines(said, logging.INFO) == [f"{job} starts from scratch", end]
    program.run()
    (warning,) = lines(said, logging.WARNING)
    assert warning.startswith(f"{job} starts from scratch, because it has finished before")
    Program(tmp_path, bursts(10), settings={"penstock__recovery__fresh": "true"}).run()
    fresh = f"{job} starts from scratch, as penstock.recovery.fresh says"
    assert lines(said, logging.INFO) == [fresh, end]


def test_a_suspended_job_says_that_it_resumes_and_from_what(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    program = Program(tmp_path, idle_after(20))
    job = program.launch()
    wait_for_lines(program, 20)
    die(job)
    assert lines(said, logging.INFO)[-1] == (
        "Job 'count' is suspended. Next: the same command resumes it from its newest checkpoint; "
        "--fresh starts it from scratch"
    )
    newest = program.dir.path / program.journal().restorable[-1].path
    Program(tmp_path, bursts(40)).run()
    assert lines(said, logging.INFO)[0] == (
        f"Job 'count' (id {program.dir.key}, directory {program.dir.path}) restores {newest}"
    )


def test_a_stopped_job_says_how_it_is_resumed(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    job = Program(tmp_path, idle_after(20)).launch()
    savepoint = job.stop(str(tmp_path), drain=False).result(60)
    assert job.wait_for_end(60)
    assert lines(said, logging.INFO)[-1] == (
        "Job 'count' was stopped with a savepoint. "
        f"Next: penstock run -s {savepoint} {ME} with your other options and arguments resumes it"
    )


def test_a_cancelled_job_says_how_its_retained_checkpoint_is_restored(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    key = "execution__checkpointing__externalized_checkpoint_retention"
    retained = {key: "RETAIN_ON_CANCELLATION"}
    program = Program(tmp_path, idle_after(20), settings=retained)
    job = program.launch()
    wait_for_lines(program, 20)
    job.cancel()
    assert job.wait_for_end(60)
    newest = program.dir.path / program.journal().restorable[-1].path
    assert lines(said, logging.INFO)[-1] == (
        f"Job 'count' was canceled. Next: penstock run -s {newest} {ME} with your other options "
        "and arguments resumes it; the same command starts it from scratch"
    )


def test_a_cancelled_job_that_was_restored_says_that_its_command_restores_again(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    job = Program(tmp_path, idle_after(20)).launch()
    savepoint = job.stop(str(tmp_path), drain=False).result(60)
    assert job.wait_for_end(60)
    settings = {"execution__state_recovery__path": savepoint}
    again = Program(tmp_path, idle_after(20), settings=settings).launch()
    again.cancel()
    assert again.wait_for_end(60)
    assert lines(said, logging.INFO)[-1] == (
        f"Job 'count' was canceled. Next: the same command restores {savepoint} again"
    )


def test_a_cancelled_job_says_that_the_snapshot_it_had_claimed_is_deleted(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    job = Program(tmp_path, idle_after(20)).launch()
    savepoint = job.stop(str(tmp_path), drain=False).result(60)
    assert job.wait_for_end(60)
    settings = {
        "execution__state_recovery__path": savepoint,
        "execution__state_recovery__claim_mode": "CLAIM",
    }
    again = Program(tmp_path, idle_after(20), settings=settings).launch()
    eventually(lambda: not Path(savepoint).exists())
    again.cancel()
    assert again.wait_for_end(60)
    assert lines(said, logging.INFO)[-1] == (
        f"Job 'count' was canceled. Next: {savepoint} is deleted, the command without it starts "
        "it from scratch"
    )


def test_a_job_without_a_checkpoint_directory_says_so(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    Program(tmp_path, bursts(10), directory=None).run()
    start, end = lines(said, logging.INFO)
    assert ", without a checkpoint directory) starts from scratch" in start
    assert end.endswith(
        "it ran without a checkpoint directory: the same command starts it from scratch"
    )


# -- another program under the same id ----------------------------------------------------------


def test_a_different_program_under_the_same_id_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    program = Program(tmp_path, idle_after(20))
    job = program.launch()
    wait_for_lines(program, 20)
    die(job)
    changed = Program(tmp_path, bursts(40), uid="total")
    with pytest.raises(NonRestoredStateError):
        changed.run()
    monkeypatch.setattr(sys, "argv", ["jobs/total.py"])
    with pytest.raises(DifferentProgramError) as refused:
        changed.run()
    assert f"was last run by another program, {ME}" in str(refused.value)
    assert "holds state that no step of this job restores: " in str(refused.value)
    assert "own id with --job-id, or start it from scratch with --fresh" in str(refused.value)
    said.clear()
    Program(tmp_path, bursts(40)).run()
    assert any("jobs/total.py continues with its state" in r.getMessage() for r in said.records)
