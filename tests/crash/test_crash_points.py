"""The driver is killed with -9 at every crash point, and the output of the job stays exact."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import msgspec
import pytest

from penstock.crash_points import CrashPoint
from tests.crash.driver import crashes, history_of
from tests.crash.faults import CrashAt, Fault, KilledSavepoint
from tests.crash.pipeline import Variant
from tests.crash.schedules import Outcome, Schedule, play

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
    CrashPoint.STAGE_IN_FLIGHT_RECORDED: 6,
    CrashPoint.STAGE_IN_FLIGHT_KEPT: 6,
}
"""Points that are passed often: a time when there is already something to lose."""
ONLY_ONCE = (CrashPoint.JOB_FINISHING, CrashPoint.JOB_FINISHED)
IN_FLIGHT = [point for point in CrashPoint if "in-flight" in point]
"""Points of barriers that overtake: something has to wait before them."""


def faults_at(point: CrashPoint) -> tuple[Fault, ...]:
    if point is CrashPoint.SAVEPOINT_WRITTEN:
        return (KilledSavepoint(0.0, point),)
    if point.startswith("recovery"):
        # After a completed checkpoint there is something to recover, and then again.
        return (CrashAt(CrashPoint.COORDINATOR_COMPLETED, 2), CrashAt(point), CrashAt(point))
    return (CrashAt(point, 1 if point in ONLY_ONCE else SECOND.get(point, 2)),)


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[CrashPoint, Future[tuple[Variant, Outcome]]]]:
    """Runs the jobs of all selected tests, two at a time: they mostly wait."""
    items = [i for i in request.session.items if isinstance(i, pytest.Function)]
    points: list[CrashPoint] = [
        cast(CrashPoint, i.callspec.params["point"]) for i in items if i.module is request.module
    ]

    def kill_at(point: CrashPoint) -> tuple[Variant, Outcome]:
        directory = tmp_path_factory.mktemp(point)
        variant = Variant(
            str(directory),
            fast=600,
            slow=48,
            pause_ms=25,
            interval_ms=30,
            stays=point is CrashPoint.SAVEPOINT_WRITTEN,
        )
        if point in IN_FLIGHT:
            variant = msgspec.structs.replace(
                variant, joins=True, unaligned=True, pause_ms=5, think_ms=2, max_batch=30
            )
        return variant, play(Schedule(0, variant, faults_at(point)), directory)

    with ThreadPoolExecutor(2) as pool:
        yield {point: pool.submit(kill_at, point) for point in points}


@pytest.mark.parametrize("point", CrashPoint)
def test_a_driver_killed_at_a_crash_point_keeps_the_output_exact(
    killed: dict[CrashPoint, Future[tuple[Variant, Outcome]]], point: CrashPoint
) -> None:
    variant, outcome = killed[point].result()
    assert outcome.is_good, outcome
    assert point in crashes(variant), "it was never reached"
    if point in IN_FLIGHT:
        assert any(c.in_flight_bytes for c in history_of(variant)), "nothing was ever in flight"
