"""Savepoints of running jobs, and jobs that start from one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.common.job_status import JobStatus
from penstock.errors import (
    CheckpointFailedError,
    CorruptMetadataError,
    CorruptStateError,
    NonRestoredStateError,
    RestoreMismatchError,
)
from penstock.savepoint.directory import read_savepoint_metadata
from penstock.testing import Burst, ManualClock, Pause, compare
from tests.unit.job.counting import (
    KEYS,
    Program,
    bursts,
    checkpoint,
    counted,
    die,
    flip_a_byte,
    idle_after,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.support import eventually

BACKENDS = ["memory", "hashmap", "rocksdb"]


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def saved(root: Path, records: int = 50, *, backend: str = "hashmap", parallelism: int = 2) -> Path:
    """A savepoint of a job that has counted this many records."""
    settings = {"state__backend__type": backend}
    program = Program(root, idle_after(records), parallelism=parallelism, settings=settings)
    job = program.launch()
    wait_for_records(job, records)
    path = Path(job.savepoint(str(root / "savepoints")).result(20))
    job.cancel()
    assert job.wait_for_end(20)
    return path


def restored(root: Path, path: Path, **settings: str) -> Program:
    """The same program in another directory, started from a savepoint."""
    return Program(
        root / "second",
        bursts(100),
        settings={"execution__state_recovery__path": str(path), **settings},
    )


def numbers_after(records: int) -> list[str]:
    """The part of `counted` from `records` on."""
    return counted(100)[records:]


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(BACKENDS, 2))[::2])
def test_a_savepoint_restores_into_another_backend_at_another_parallelism(
    tmp_path: Path, old: str, new: str
) -> None:
    path = saved(tmp_path, backend=old, parallelism=2)
    program = restored(tmp_path, path, state__backend__type=new)
    program.root.mkdir()
    program.parallelism = 3
    program.run()
    # Committables in a savepoint are committed by the job that restores it.
    assert compare(numbers_after(50), program.lines()).is_exactly_once
    verdict = compare(counted(100), [*Program(tmp_path).lines(), *program.lines()])
    assert verdict.is_exactly_once, verdict


def test_restoring_a_savepoint_does_not_change_it(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    for _ in range(2):
        program = restored(tmp_path, path)
        program.root.mkdir(exist_ok=True)
        program.run()
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


def test_a_job_started_from_a_savepoint_resumes_from_its_own_checkpoint_after_a_crash(
    tmp_path: Path,
) -> None:
    path = saved(tmp_path)
    program = restored(tmp_path, path)
    program.root.mkdir()
    program.script, program.interval = idle_after(80), "1 h"
    job = program.launch()
    wait_for_records(job, 30)
    n = checkpoint(job)
    die(job)
    program.script = bursts(100)
    program.run()
    assert program.history().recoveries()[-1].checkpoint == n
    assert compare(numbers_after(50), program.lines()).is_exactly_once


def test_a_stop_commits_and_a_job_resumes_from_its_savepoint(tmp_path: Path) -> None:
    first = Program(tmp_path, idle_after(50), interval="1 h")
    job = first.launch()
    wait_for_records(job, 50)
    path = Path(job.stop(str(tmp_path / "savepoints"), drain=False).result(20))
    assert job.wait_for_end(20)
    assert first.verdict(50).is_exactly_once, first.verdict(50)
    ended = first.journal().ended
    assert ended is not None
    assert (ended.status, ended.savepoint) == (JobStatus.FINISHED, str(path))
    second = restored(tmp_path, path)
    second.root.mkdir()
    second.run()
    verdict = compare(counted(100), [*first.lines(), *second.lines()])
    assert verdict.is_exactly_once, verdict


def test_a_drained_job_ends_its_sources_where_they_are(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    path = Path(job.stop(str(tmp_path / "savepoints"), drain=True).result(20))
    assert job.wait_for_end(20)
    assert (path / "_metadata").exists()
    assert program.verdict(50).is_exactly_once, program.verdict(50)


def test_a_plain_savepoint_does_not_change_the_job(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(50))
    job = program.launch()
    wait_for_records(job, 20)
    for _ in range(3):
        job.savepoint(str(tmp_path / "savepoints")).result(20)
    wait_for_lines(program, 50)
    die(job)
    program.script = bursts(100)
    program.run()
    assert program.verdict().is_exactly_once, program.verdict()
    assert len(list((tmp_path / "savepoints").iterdir())) == 3


def test_a_savepoint_of_a_job_without_checkpoints_loses_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    script = [Burst(range(50)), Pause(10), Burst(range(50, 100))]
    program = Program(tmp_path, script, clock=clock, interval=None)
    job = program.launch()
    wait_for_records(job, 20)
    for _ in range(3):
        job.savepoint(str(tmp_path / "savepoints")).result(20)
    clock.advance(10)
    assert job.wait_for_end(20)
    assert program.verdict().is_exactly_once, program.verdict()


def test_a_savepoint_without_a_directory_is_rejected(tmp_path: Path) -> None:
    job = Program(tmp_path, idle_after(10)).launch()
    with pytest.raises(CheckpointFailedError, match="savepoint-dir"):
        job.savepoint(None).result(20)


# -- mismatches ---------------------------------------------------------------------------------


def test_unmatched_state_is_rejected_unless_non_restored_state_is_allowed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    program = restored(tmp_path, path)
    program.root.mkdir()
    program.uid = "renamed"
    with pytest.raises(NonRestoredStateError, match="uid count"):
        program.run()
    program.settings["execution__state_recovery__ignore_unclaimed_state"] = "true"
    program.run()
    numbers = itertools.groupby(sorted(range(50, 100), key=lambda n: n % KEYS), lambda n: n % KEYS)
    anew = [f"{key} {i}" for key, mine in numbers for i, _ in enumerate(mine, 1)]
    assert compare(anew, program.lines()).is_exactly_once


def test_a_changed_explicit_max_parallelism_is_rejected(tmp_path: Path) -> None:
    path = saved(tmp_path)
    program = restored(tmp_path, path)
    program.root.mkdir()
    env = program.build()
    env.set_max_parallelism(64)
    with pytest.raises(RestoreMismatchError, match="max parallelism 128, and 64 is set now"):
        env.execute("count")


@pytest.mark.parametrize("kind", ["_metadata", "*.parquet"])
def test_a_damaged_savepoint_is_rejected_and_no_other_snapshot_is_used(
    tmp_path: Path, kind: str
) -> None:
    path = saved(tmp_path)
    flip_a_byte(max(path.rglob(kind), key=lambda p: p.stat().st_size))
    program = restored(tmp_path, path)
    program.root.mkdir()
    with pytest.raises((CorruptMetadataError, CorruptStateError)):
        program.run()
    assert not (program.root / "out").exists() or program.lines() == []


def test_a_failed_drain_lets_the_job_continue(tmp_path: Path) -> None:
    program = Program(tmp_path, bursts(100, pause=0.02))
    job = program.launch()
    (tmp_path / "file").touch()
    eventually(lambda: len(program.lines()) > 0)
    with pytest.raises(CheckpointFailedError, match="did not complete"):
        job.stop(str(tmp_path / "file"), drain=True).result(20)
    assert job.wait_for_end(30)
    assert job.status() is JobStatus.FINISHED
    assert program.verdict().is_exactly_once, program.verdict()


def test_a_failed_savepoint_loses_no_output(tmp_path: Path) -> None:
    program = Program(tmp_path, bursts(100, pause=0.02), interval=None)
    job = program.launch()
    (tmp_path / "file").touch()
    eventually(lambda: len(job.micro_batches()) > 4)
    with pytest.raises(CheckpointFailedError, match="did not complete"):
        job.savepoint(str(tmp_path / "file")).result(20)
    assert job.wait_for_end(30)
    assert program.verdict().is_exactly_once, program.verdict()


def test_checkpoint_ids_continue_after_that_of_another_jobs_savepoint(tmp_path: Path) -> None:
    first = Program(tmp_path, idle_after(40))
    job = first.launch()
    wait_for_lines(first, 20)
    path = job.savepoint(str(tmp_path / "savepoints")).result(20)
    number = read_savepoint_metadata(Path(path)).checkpoint
    die(job)
    other = Program(
        tmp_path,
        directory="others",
        output="others-out",
        settings={"execution__state_recovery__path": path},
    )
    other.run()
    assert all(c.checkpoint > number for c in other.journal().completed)
