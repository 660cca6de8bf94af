"""The verifier finds an engine that breaks one rule of the protocol."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.crash_points import CrashPoint
from penstock.testing import VerificationResult
from tests.crash.broken_engines import (
    BREAK,
    BROKEN,
    BROKEN_BARRIERS,
    BROKEN_RESTORES,
)
from tests.crash.driver import crash_at, has_ended, started
from tests.crash.pipeline import DIE_IN_FLIGHT, Variant
from tests.crash.schedules import verdict_of

pytestmark = pytest.mark.crash

DIES_AT: dict[str, CrashPoint | None] = {
    "commit_before_completion": None,
    "no_commit_on_restore": CrashPoint.SINK_COMMITS_STARTED,
    "leaky_gate": None,
    "state_of_another_version": None,
}
"""Where a driver must die for the harm to show; None if it sees to that itself."""


def variant_in(directory: Path) -> Variant:
    return Variant(
        str(directory), fast=900, slow=60, pause_ms=25, lag_ms=60, interval_ms=25, concurrent=4
    )


def late_in(directory: Path) -> Variant:
    # The slow source always reads, so that every barrier has something of it still to come, and
    # something depends on holding the other one; and what the fast one sends has to wait.
    return Variant(
        str(directory),
        joins=True,
        fast=1800,
        slow=72,
        pause_ms=4,
        lag_ms=120,
        think_ms=1,
        interval_ms=20,
        max_batch=30,
        unaligned=True,
    )


def verdict_with(
    rule: str, variant: Variant, point: CrashPoint | None, nth: int = 4
) -> VerificationResult:
    """Let a broken engine die and recover, and verify its output."""
    dies = {} if point is None else crash_at(point, nth)
    with started(variant, {BREAK: rule, **dies}) as driver:
        assert driver.wait() == -9, driver.words()
    return verdict_behind_its_death(variant, None if point is None else rule)


def verdict_behind_its_death(variant: Variant, rule: str | None) -> VerificationResult:
    """Let it recover, perhaps with a broken engine, and verify its output."""
    for _ in range(3):
        if not has_ended(variant):
            with started(variant, {} if rule is None else {BREAK: rule}) as driver:
                driver.wait()
    return verdict_of(variant)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(tmp_path: Path, rule: str) -> None:
    point = DIES_AT.get(rule, CrashPoint.SINK_COMMITS_DONE)
    aligned = msgspec.structs.replace(late_in(tmp_path), unaligned=False, think_ms=0, lag_ms=200)
    variant = aligned if rule == "leaky_gate" else variant_in(tmp_path)
    verdict = verdict_with(rule, variant, point)
    assert not verdict.is_exactly_once, f"{rule} was not noticed: {verdict}"


@pytest.mark.parametrize(
    ("rule", "harm"), list(zip(BROKEN_BARRIERS, ["lost", "duplicated"], strict=True))
)
def test_a_broken_rule_of_unaligned_barriers_is_noticed(
    tmp_path: Path, rule: str, harm: str
) -> None:
    verdict = verdict_with(rule, late_in(tmp_path), None)
    assert getattr(verdict, harm), f"{rule} was not noticed: {verdict}"


@pytest.mark.parametrize(
    ("rule", "harm"), list(zip(BROKEN_RESTORES, ["lost", "out_of_order"], strict=True))
)
def test_wrongly_restored_in_flight_records_are_noticed(
    tmp_path: Path, rule: str, harm: str
) -> None:
    variant = late_in(tmp_path)
    with started(variant, {DIE_IN_FLIGHT: CrashPoint.COORDINATOR_COMPLETED}) as driver:
        assert driver.wait() == -9, driver.words()
    verdict = verdict_behind_its_death(variant, rule)
    assert getattr(verdict, harm), f"{rule} was not noticed: {verdict}"


def test_violations_of_at_least_once_are_noticed(tmp_path: Path) -> None:
    variant = msgspec.structs.replace(late_in(tmp_path), unaligned=False, mode="AT_LEAST_ONCE")
    verdict = verdict_with("no_rewind", variant, CrashPoint.SINK_COMMITS_DONE, 3)
    assert not verdict.is_at_least_once, verdict


def test_a_correct_engine_passes(tmp_path: Path) -> None:
    variant = variant_in(tmp_path)
    with started(variant, crash_at(CrashPoint.SINK_COMMITS_DONE, 2)) as driver:
        assert driver.wait() == -9, driver.words()
    with started(variant) as driver:
        assert driver.wait() == 0, driver.words()
    verdict = verdict_of(variant)
    assert verdict.is_exactly_once, verdict
