"""Killed jobs whose inputs pile up: what barriers overtook, and harm to what is on its way."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.history import CheckpointStats, CheckpointStatus
from penstock.crash_points import CrashPoint
from tests.crash.damage import damage, in_flight_files, records_in_flight
from tests.crash.driver import history_of, journal_of, started
from tests.crash.faults import (
    CrashAt,
    DiskFull,
    Fault,
    LostMicroBatches,
    StopAndRestore,
    Supervised,
    damage_waiting,
)
from tests.crash.pipeline import DIE_IN_FLIGHT, Variant
from tests.crash.schedule_parts import Family
from tests.crash.schedules import Outcome, Schedule, play, play_in_a_new_place, verdict_of

pytestmark = pytest.mark.crash

TIMEOUT = "execution.checkpointing.timeout"
TOLERABLE = "execution.checkpointing.tolerable-failed-checkpoints"


def piling_up(directory: Path) -> Variant:
    """Orders come faster than they are joined with payments, and these come late."""
    return Variant(
        str(directory),
        joins=True,
        unaligned=True,
        fast=600,
        slow=36,
        pause_ms=4,
        lag_ms=60,
        think_ms=1.5,
        max_batch=30,
        interval_ms=30,
    )


def through(directory: Path, *faults: Fault, **changes: object) -> Outcome:
    variant = msgspec.structs.replace(piling_up(directory), **changes)
    return play(Schedule(0, variant, faults), directory)


def killed_with_records_in_flight(variant: Variant, point: CrashPoint) -> str:
    """Kill the job after a checkpoint with in-flight records; return its path."""
    with started(variant, {DIE_IN_FLIGHT: point}) as driver:
        assert driver.wait() == -9, driver.words()
    newest = journal_of(variant).restorable[-1].path
    assert records_in_flight(variant, newest) > 0
    return newest


def test_schedules_of_faults_keep_the_output_exact() -> None:
    seeds = [3, 4, 12, 51]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(partial(play_in_a_new_place, family=Family.JOINED), seeds))
    assert all(outcome.is_good for outcome in outcomes), "\n".join(map(str, outcomes))


# -- one stage, and all of them -----------------------------------------------------------------


def test_lost_micro_batches_run_again_with_the_same_records(tmp_path: Path) -> None:
    outcome = through(tmp_path, LostMicroBatches((4, 11, 12, 30)))
    assert outcome.is_good, outcome
    assert outcome.attempts == 1


def test_one_failed_stage_restores_all_stages(tmp_path: Path) -> None:
    outcome = through(tmp_path, failures=(90, 200, 450))
    assert outcome.is_good, outcome
    assert outcome.attempts == 4


def test_a_supervised_restart_restores_in_flight_records(tmp_path: Path) -> None:
    outcome = through(tmp_path, Supervised((0.3, 0.2)), think_ms=3, fast=900, slow=54)
    assert outcome.is_good, outcome
    assert outcome.attempts == 3


# -- damaged segments ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["truncated", "flipped"])
def test_a_damaged_segment_is_named_and_the_job_recovers(tmp_path: Path, kind: str) -> None:
    variant = msgspec.structs.replace(piling_up(tmp_path), fast=1500, slow=90)
    with started(variant) as driver:
        path = damage_waiting(driver, variant, kind, random.Random(kind))
        assert driver.wait() == 0, driver.words()
    assert path is not None, "nothing waited"
    assert path.name in driver.log.read_text(), "it was not named"
    assert journal_of(variant).attempts_so_far > 1
    verdict = verdict_of(variant)
    assert verdict.is_exactly_once, verdict


def test_a_restored_segment_is_restored_again(tmp_path: Path) -> None:
    variant = piling_up(tmp_path)
    newest = killed_with_records_in_flight(variant, CrashPoint.COORDINATOR_COMPLETED)
    stored = [path for path in in_flight_files(variant, newest) if "join" in path.parts]
    gated = msgspec.structs.replace(variant, gated=True)
    with started(gated) as driver:

        def brought_back() -> list[Path]:
            return list(variant.work.glob("*/a2/channels/*/restored-*.arrow"))

        assert driver.wait_until(lambda: len(brought_back()) >= len(stored)), driver.words()
        path = max(brought_back(), key=lambda path: len(list(path.parent.iterdir())))
        damage(path, "flipped", random.Random(0))
        variant.gate.touch()
        assert driver.wait() == 0, driver.words()
    assert str(path) in driver.log.read_text(), "it was not named"
    verdict = verdict_of(variant)
    assert verdict.is_exactly_once, verdict


def test_damaged_in_flight_records_fall_back_if_nothing_was_committed(
    tmp_path: Path,
) -> None:
    variant = msgspec.structs.replace(piling_up(tmp_path), retained=2)
    newest = killed_with_records_in_flight(variant, CrashPoint.COORDINATOR_COMPLETED)
    path = in_flight_files(variant, newest)[-1]
    damage(path, "missing", random.Random(0))
    with started(variant) as driver:
        assert driver.wait() == 0, driver.words()
    assert "is damaged" in driver.log.read_text()
    assert str(path) in driver.log.read_text()
    verdict = verdict_of(variant)
    assert verdict.is_exactly_once, verdict


def test_damaged_in_flight_records_are_never_skipped(tmp_path: Path) -> None:
    variant = msgspec.structs.replace(piling_up(tmp_path), retained=2)
    newest = killed_with_records_in_flight(variant, CrashPoint.SINK_COMMITS_DONE)
    path = in_flight_files(variant, newest)[0]
    good = path.read_bytes()
    damage(path, "flipped", random.Random(0))
    with started(variant) as driver:
        assert driver.wait() == 1, driver.words()
        assert "BadCheckpointError" in driver.words()
        assert str(path) in driver.words()
    path.write_bytes(good)
    outcome = play(Schedule(0, variant, ()), tmp_path)
    assert outcome.is_good, outcome


# -- another shape ------------------------------------------------------------------------------


def test_in_flight_records_prevent_rescaling_until_a_savepoint(
    tmp_path: Path,
) -> None:
    variant = piling_up(tmp_path)
    killed_with_records_in_flight(variant, CrashPoint.COORDINATOR_COMPLETED)
    with started(msgspec.structs.replace(variant, parallelism=3)) as driver:
        assert driver.wait() == 1, driver.words()
        assert "RestoreMismatchError" in driver.words()
        assert "take a savepoint" in driver.words()
    open_ended = msgspec.structs.replace(variant, stays=True)
    outcome = play(Schedule(0, open_ended, (StopAndRestore(3, "memory"),)), tmp_path)
    assert outcome.is_good, outcome


# -- checkpoints that fail ----------------------------------------------------------------------


def test_barriers_of_expired_checkpoints_are_ignored(tmp_path: Path) -> None:
    # Payments take longer than a checkpoint may, so that most end while they are recorded.
    changes: dict[str, object] = {"lag_ms": 400, "slow": 12}
    changes["settings"] = {TIMEOUT: "200 ms", TOLERABLE: "1000"}
    outcome = through(tmp_path, CrashAt(CrashPoint.COORDINATOR_COMPLETED), **changes)
    assert outcome.is_good, outcome
    expired = [c for c in history_of(piling_up(tmp_path)) if is_expired(c)]
    overtaken = [
        line for c in expired for line in c.events if line.event is CheckpointEvent.OVERTAKEN
    ]
    assert overtaken, "no barrier of them had overtaken anything"


def is_expired(record: CheckpointStats) -> bool:
    return (record.failure or "").startswith(CheckpointFailureReason.EXPIRED.value)


def test_expired_checkpoints_are_tolerated_as_often_as_configured(tmp_path: Path) -> None:
    hopeless = msgspec.structs.replace(
        piling_up(tmp_path),
        lag_ms=300,
        settings={TIMEOUT: "20 ms", TOLERABLE: "2", "restart-strategy.type": "none"},
    )
    with started(hopeless) as driver:
        assert driver.wait() == 1, driver.words()
        assert "TooManyFailedCheckpointsError" in driver.words()
    first, second, third, *_ = history_of(hopeless)
    assert all(map(is_expired, (first, second, third)))
    assert f"checkpoint {third.id}" in driver.words().splitlines()[-1]
    outcome = play(Schedule(0, piling_up(tmp_path), ()), tmp_path)
    assert outcome.is_good, outcome


def test_a_checkpoint_that_cannot_store_in_flight_data_does_not_fail_the_job(
    tmp_path: Path,
) -> None:
    full = DiskFull("fsync", 1, 2, where="in-flight")
    outcome = through(tmp_path, full, settings={TOLERABLE: "100"})
    assert outcome.is_good, outcome
    assert outcome.attempts == 1
    records = history_of(piling_up(tmp_path))
    assert any("No space left on device" in (c.failure or "") for c in records)
    assert any(c.in_flight_bytes for c in records if c.status is CheckpointStatus.COMPLETED)
