"""The judge can fail: an engine that breaks one rule of the protocol is found out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from penstock.crash_points import CrashPoint
from penstock.testing import Verdict
from tests.crash.broken import BREAK, BROKEN, BROKEN_IN_FLIGHT
from tests.crash.driver import crash_at, has_ended, started
from tests.crash.pipeline import Variant
from tests.crash.schedules import verdict_of

pytestmark = pytest.mark.crash

DIES_AT: dict[str, CrashPoint | None] = {
    "commit_before_completion": None,
    "no_commit_on_restore": CrashPoint.SINK_COMMITS_STARTED,
    "leaky_gate": None,
}
"""Where a driver must die for the harm to show; None if it sees to that itself."""


def variant_in(directory: Path) -> Variant:
    # Barriers come while the slow source still reads, so that something depends on holding them.
    return Variant(
        str(directory), fast=450, slow=30, pause_ms=25, lag_ms=60, interval_ms=25, concurrent=4
    )


def late_in(directory: Path) -> Variant:
    # The slow source always reads, so that every barrier has something of it still to come; and
    # what the fast one sends has to wait.
    return Variant(
        str(directory),
        joins=True,
        fast=900,
        slow=36,
        pause_ms=4,
        lag_ms=120,
        think_ms=1,
        interval_ms=20,
        max_batch=30,
        unaligned=True,
    )


def verdict_with(rule: str, variant: Variant, point: CrashPoint | None, nth: int = 4) -> Verdict:
    """Let a broken engine die and come back, and judge it."""
    dies = {} if point is None else crash_at(point, nth)
    with started(variant, {BREAK: rule, **dies}) as driver:
        assert driver.wait() == -9, driver.words()
    for _ in range(3):
        if not has_ended(variant):
            with started(variant, {} if point is None else {BREAK: rule}) as driver:
                driver.wait()
    return verdict_of(variant)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(tmp_path: Path, rule: str) -> None:
    point = DIES_AT.get(rule, CrashPoint.SINK_COMMITS_DONE)
    verdict = verdict_with(rule, variant_in(tmp_path), point)
    assert not verdict.is_exactly_once, f"{rule} was not noticed: {verdict}"


def test_broken_rules_of_overtaking_barriers_are_noticed(tmp_path: Path) -> None:
    def verdict_of_broken(rule: str) -> Verdict:
        directory = tmp_path / rule
        directory.mkdir()
        return verdict_with(rule, late_in(directory), CrashPoint.COORDINATOR_COMPLETED, 3)

    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(verdict_of_broken, BROKEN_IN_FLIGHT))
    harm = ["lost", "out_of_order", "lost", "duplicated"]
    for rule, verdict, expected in zip(BROKEN_IN_FLIGHT, verdicts, harm, strict=True):
        assert getattr(verdict, expected), f"{rule} was not noticed: {verdict}"


def test_what_at_least_once_may_not_do_either_is_noticed(tmp_path: Path) -> None:
    variant = msgspec.structs.replace(late_in(tmp_path), unaligned=False, mode="AT_LEAST_ONCE")
    verdict = verdict_with("no_rewind", variant, CrashPoint.SINK_COMMITS_DONE, 3)
    assert not verdict.is_at_least_once, verdict


def test_a_whole_engine_is_not_blamed(tmp_path: Path) -> None:
    variant = variant_in(tmp_path)
    with started(variant, crash_at(CrashPoint.SINK_COMMITS_DONE, 2)) as driver:
        assert driver.wait() == -9, driver.words()
    with started(variant) as driver:
        assert driver.wait() == 0, driver.words()
    verdict = verdict_of(variant)
    assert verdict.is_exactly_once, verdict
