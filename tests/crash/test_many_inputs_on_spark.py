"""The job with two inputs on a real Spark: a deep backlog, and another shape."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus
from penstock.recovery.control import Checkpoint
from tests.crash.damage import records_in_flight, waiting_segments
from tests.crash.driver import Driver, history_of, journal_of, send, started
from tests.crash.faults import KilledWorkers, StopAndRestore
from tests.crash.pipeline import Variant
from tests.crash.schedules import Schedule, play, verdict_of

pytestmark = [pytest.mark.crash, pytest.mark.spark]

DEEP = 60
"""Segments that wait for the slow step."""


def backlogged(directory: Path) -> Variant:
    """The join is slow, and does not begin before its inputs have filled up."""
    return Variant(
        str(directory),
        spark=True,
        joins=True,
        fast=2_100,
        slow=210,
        pause_ms=0,
        think_ms=9,
        gated=True,
        max_batch=20,
        interval_ms=3_600_000,
        settings={"spark.master": "local[4]"},
    )


def checkpoint_over_a_backlog(driver: Driver, variant: Variant) -> CheckpointStats:
    """Trigger a checkpoint once enough records wait; return its statistics."""
    variant.gate.unlink(missing_ok=True)
    assert driver.wait_until(lambda: len(waiting_segments(variant)) >= DEEP), driver.words()
    oldest, before = waiting_segments(variant)[0], len(completed(variant))
    variant.gate.touch()
    # The first micro-batch of a process takes longer than others, whatever passes.
    assert driver.wait_until(lambda: not oldest.exists()), driver.words()
    send(variant, Checkpoint())
    assert driver.wait_until(lambda: len(completed(variant)) > before), driver.words()
    return completed(variant)[-1]


def completed(variant: Variant) -> list[CheckpointStats]:
    return [c for c in history_of(variant) if c.status is CheckpointStatus.COMPLETED]


def test_barriers_overtake_a_backlog_that_survives_a_killed_driver(
    tmp_path: Path,
) -> None:
    variant = backlogged(tmp_path)
    with started(variant) as driver:
        aligned = checkpoint_over_a_backlog(driver, variant)
        driver.kill()
    unaligned = msgspec.structs.replace(variant, unaligned=True)
    with started(unaligned) as driver:
        overtaking = checkpoint_over_a_backlog(driver, variant)
        driver.kill()
    newest = journal_of(variant).restorable[-1]
    assert records_in_flight(variant, newest.path) > DEEP * variant.max_batch / 2
    # Usually more than ten times shorter (`make demo-barriers`); a stall must not fail the test.
    assert overtaking.duration_s * 4 <= aligned.duration_s, (
        f"{overtaking.duration_s:.2f} s unaligned, {aligned.duration_s:.2f} s aligned"
    )
    with started(msgspec.structs.replace(unaligned, think_ms=0, max_batch=3_000)) as driver:
        assert driver.wait() == 0, driver.words()
    verdict = verdict_of(variant)
    assert verdict.is_exactly_once, verdict


def test_a_savepoint_of_two_joined_sources_resumes_with_more_subtasks(tmp_path: Path) -> None:
    variant = Variant(
        str(tmp_path),
        spark=True,
        joins=True,
        unaligned=True,
        fast=900,
        slow=60,
        pause_ms=60,
        stays=True,
        think_ms=1,
        max_batch=60,
        interval_ms=300,
        failures=(900,),
        settings={"spark.master": "local[4]"},
    )
    faults = StopAndRestore(3, "hashmap"), KilledWorkers((1.5, 1.0))
    outcome = play(Schedule(0, variant, faults), tmp_path)
    assert outcome.is_good, outcome
    assert outcome.attempts == 3
