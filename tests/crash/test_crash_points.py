"""The driver dies with -9 at every crash point there is, and the job goes on as if it had not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.crash_points import CrashPoint
from tests.crash.driver import crashes
from tests.crash.faults import CrashAt, Fault, KilledSavepoint
from tests.crash.pipeline import Variant
from tests.crash.schedules import Schedule, play

pytestmark = pytest.mark.crash

SECOND = {
    CrashPoint.STAGE_BEFORE_MANIFEST: 25,
    CrashPoint.STAGE_AFTER_MANIFEST: 26,
    CrashPoint.JOURNAL_BEFORE_APPEND: 5,
    CrashPoint.JOURNAL_AFTER_APPEND: 6,
    CrashPoint.STAGE_BARRIER_FORWARDED: 7,
    CrashPoint.STAGE_SNAPSHOT_FROZEN: 7,
    CrashPoint.STAGE_SNAPSHOT_DURABLE: 7,
    CrashPoint.COORDINATOR_ACKNOWLEDGED: 8,
}
"""Points that are passed often: a time when there is already something to lose."""
ONLY_ONCE = (CrashPoint.JOB_FINISHING, CrashPoint.JOB_FINISHED)


def faults_at(point: CrashPoint) -> tuple[Fault, ...]:
    if point is CrashPoint.SAVEPOINT_WRITTEN:
        return (KilledSavepoint(0.0, point),)
    if point.startswith("recovery"):
        # Behind a completed checkpoint there is something to recover, and then again.
        return (CrashAt(CrashPoint.COORDINATOR_COMPLETED, 2), CrashAt(point), CrashAt(point))
    return (CrashAt(point, 1 if point in ONLY_ONCE else SECOND.get(point, 2)),)


@pytest.mark.parametrize("point", CrashPoint)
def test_a_driver_killed_here_leaves_no_trace(tmp_path: Path, point: CrashPoint) -> None:
    variant = Variant(str(tmp_path), fast=450, slow=45, pause_ms=20, interval_ms=30)
    outcome = play(Schedule(0, variant, faults_at(point)), tmp_path)
    assert point in crashes(variant), "it was never reached"
    assert outcome.is_good, outcome
