"""Windows that schedules meet seldom, and what is claimed of each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.crash_points import CrashPoint
from penstock.recovery.control import Savepoint
from penstock.testing import VerificationResult
from tests.crash.damage import check_savepoints, checkpoint_files
from tests.crash.driver import completed_checkpoints, crash_at, insist, journal_of, started
from tests.crash.faults import (
    CrashAt,
    CrashBehind,
    DiskFull,
    Fault,
    KilledSavepoint,
    KilledStop,
    Rescale,
    StopAndRestore,
    Zombie,
)
from tests.crash.output_verifier import read_results, verify_output
from tests.crash.pipeline import Variant
from tests.crash.schedules import Outcome, Schedule, play

pytestmark = pytest.mark.crash


def small(directory: Path) -> Variant:
    return Variant(str(directory), fast=300, slow=24, pause_ms=25, interval_ms=30)


def through(directory: Path, *faults: Fault, **changes: object) -> Outcome:
    variant = msgspec.structs.replace(small(directory), **changes)
    return play(Schedule(0, variant, faults), directory)


def verdict_of(variant: Variant) -> VerificationResult:
    return verify_output(variant.fast, variant.slow, read_results(variant.output))


# -- the end of a job ---------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_job_killed_while_it_records_its_end_is_not_run_twice(tmp_path: Path, nth: int) -> None:
    fault = CrashBehind(CrashPoint.JOB_FINISHING, 1, CrashPoint.JOURNAL_BEFORE_APPEND, nth)
    outcome = through(tmp_path, fault, retained=2)
    assert outcome.is_good, outcome


# -- two drivers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.COORDINATOR_METADATA_WRITTEN,
        CrashPoint.COORDINATOR_COMPLETED,
        CrashPoint.SINK_COMMITS_STARTED,
        CrashPoint.STAGE_BEFORE_MANIFEST,
    ],
)
def test_a_fenced_driver_changes_nothing(tmp_path: Path, point: CrashPoint) -> None:
    outcome = through(tmp_path, Zombie(point, 2, thaw_after=0.3))
    assert outcome.is_good, outcome
    assert outcome.attempts == 2


# -- savepoints, stops, other shapes ------------------------------------------------------------


@pytest.mark.parametrize(
    "point", [CrashPoint.SAVEPOINT_WRITTEN, CrashPoint.COORDINATOR_METADATA_WRITTEN]
)
def test_a_savepoint_is_complete_or_does_not_exist(tmp_path: Path, point: CrashPoint) -> None:
    # Only the savepoint writes metadata here: the first checkpoint by time is far away.
    variant = msgspec.structs.replace(
        small(tmp_path), interval_ms=None, records=100, pause_ms=30, stays=True
    )
    with started(variant) as driver:
        driver.wait_until(lambda: completed_checkpoints(variant) > 0)
        driver.kill()
    quiet = msgspec.structs.replace(variant, records=100_000)
    with started(quiet, crash_at(point, 1)) as driver:
        attempts = journal_of(variant).attempts_so_far
        driver.wait_until(lambda: journal_of(variant).attempts_so_far > attempts)
        insist(driver, variant, Savepoint())
        assert driver.wait() == -9, driver.words()
    check_savepoints(variant)
    known = [c for c in journal_of(variant).completed if c.savepoint]
    assert known == [], "it died before the savepoint counted"
    outcome = play(Schedule(0, msgspec.structs.replace(variant, stays=False), ()), tmp_path)
    assert outcome.is_good, outcome


def test_a_job_stopped_with_a_savepoint_resumes_in_another_shape(tmp_path: Path) -> None:
    faults = StopAndRestore(3, "memory"), CrashAt(CrashPoint.SINK_COMMITTED, 2)
    outcome = through(tmp_path, *faults, stays=True)
    assert outcome.is_good, outcome


@pytest.mark.parametrize(
    "point", [CrashPoint.COORDINATOR_COMPLETED, CrashPoint.SINK_COMMITTED, CrashPoint.JOB_FINISHING]
)
def test_a_job_killed_while_it_stops_resumes_or_has_stopped(
    tmp_path: Path, point: CrashPoint
) -> None:
    outcome = through(tmp_path, KilledStop(point))
    assert outcome.is_good, outcome


def test_a_job_resumes_with_more_and_with_fewer_subtasks(tmp_path: Path) -> None:
    outcome = through(tmp_path, Rescale(0.3, 3), Rescale(0.3, 1), backend="rocksdb")
    assert outcome.is_good, outcome


def test_a_job_may_be_killed_repeatedly_during_savepoints(tmp_path: Path) -> None:
    outcome = through(tmp_path, KilledSavepoint(0.1), KilledSavepoint(0.3), KilledSavepoint(0.0))
    assert outcome.is_good, outcome


# -- exceptions, full disks, damaged files ------------------------------------------------------


def test_exceptions_and_kills_together(tmp_path: Path) -> None:
    outcome = through(
        tmp_path,
        CrashAt(CrashPoint.SINK_COMMITS_STARTED, 2),
        failures=(100, 101, 350),
        concurrent=2,
    )
    assert outcome.is_good, outcome


@pytest.mark.parametrize("call", ["fsync", "link"])
@pytest.mark.parametrize("last", [30, 100_000])
def test_a_full_disk_fails_the_job_clearly_or_not_at_all(
    tmp_path: Path, call: str, last: int
) -> None:
    outcome = through(tmp_path, DiskFull(call, 30, last), concurrent=2, fast=600, slow=48)
    assert outcome.is_good, outcome
    assert "No space left" in (tmp_path / "start-1.log").read_text(), "it never was full"


@pytest.mark.parametrize("what", ["_metadata", "state"])
def test_a_damaged_checkpoint_without_commits_falls_back_to_an_older_one(
    tmp_path: Path, what: str
) -> None:
    variant = msgspec.structs.replace(small(tmp_path), retained=2)
    damage_newest(variant, CrashPoint.COORDINATOR_COMPLETED, what)
    # It falls back, works a while without any checkpoint, and dies: the older one is still whole.
    quiet = msgspec.structs.replace(variant, interval_ms=60_000, max_batch=20)
    with started(quiet, crash_at(CrashPoint.STAGE_AFTER_MANIFEST, 40)) as driver:
        assert driver.wait() in (0, -9), driver.words()
        assert "is damaged" in driver.words()
    outcome = play(Schedule(0, variant, ()), tmp_path)
    assert outcome.is_good, outcome


@pytest.mark.parametrize("what", ["_metadata", "state"])
def test_a_damaged_checkpoint_that_was_committed_is_refused_by_name(
    tmp_path: Path, what: str
) -> None:
    variant = msgspec.structs.replace(small(tmp_path), retained=2)
    path, good = damage_newest(variant, CrashPoint.SINK_COMMITS_DONE, what)
    before = read_results(variant.output)
    with started(variant) as driver:
        assert driver.wait() == 1, driver.words()
        assert "BadCheckpointError" in driver.words()
        assert str(path) in driver.words()
    assert read_results(variant.output) == before, "a refused job must change nothing"
    path.write_bytes(good)
    outcome = play(Schedule(0, variant, ()), tmp_path)
    assert outcome.is_good, outcome


def damage_newest(variant: Variant, point: CrashPoint, what: str) -> tuple[Path, bytes]:
    """Kill the job at a point, then flip a bit of what only its newest checkpoint has."""
    with started(variant, crash_at(point, 2)) as driver:
        assert driver.wait() == -9, driver.words()
    *_, older, newest = journal_of(variant).restorable
    kept = checkpoint_files(variant, older.path)
    only = [path for path in checkpoint_files(variant, newest.path) if path not in kept]
    path = only[0 if what == "_metadata" else -1]
    good = path.read_bytes()
    middle = len(good) // 2
    path.write_bytes(good[:middle] + bytes([good[middle] ^ 4]) + good[middle + 1 :])
    return path, good


# -- the other modes ----------------------------------------------------------------------------


def test_at_most_once_may_lose_and_never_duplicates(tmp_path: Path) -> None:
    lost = 0
    for point in (CrashPoint.STAGE_AFTER_MANIFEST, CrashPoint.STAGE_BARRIER_FORWARDED):
        directory = tmp_path / point
        directory.mkdir()
        outcome = through(directory, CrashAt(point, 18), mode="AT_MOST_ONCE")
        assert outcome.is_good, outcome
        assert outcome.verdict is not None
        lost += len(outcome.verdict.lost)
    assert lost > 0, "a job that never loses anything does not test this mode"


def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
    outcome = through(
        tmp_path, CrashAt(CrashPoint.COORDINATOR_COMPLETED, 2), mode="AT_LEAST_ONCE", lag_ms=30
    )
    assert outcome.is_good, outcome
