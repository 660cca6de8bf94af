"""The judge can fail: an engine that breaks one rule of the protocol is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.crash_points import CrashPoint
from tests.crash.broken import BREAK, BROKEN
from tests.crash.driver import crash_at, has_ended, started
from tests.crash.judge import judge, read_results
from tests.crash.pipeline import Variant

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


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(tmp_path: Path, rule: str) -> None:
    variant = variant_in(tmp_path)
    point = DIES_AT.get(rule, CrashPoint.SINK_COMMITS_DONE)
    dies = {} if point is None else crash_at(point, 4)
    with started(variant, {BREAK: rule, **dies}) as driver:
        assert driver.wait() == -9, driver.words()
    for _ in range(3):
        if not has_ended(variant):
            with started(variant, {} if point is None else {BREAK: rule}) as driver:
                driver.wait()
    verdict = judge(variant.fast, variant.slow, read_results(variant.output))
    assert not verdict.is_exactly_once, f"{rule} was not noticed: {verdict}"


def test_a_whole_engine_is_not_blamed(tmp_path: Path) -> None:
    variant = variant_in(tmp_path)
    with started(variant, crash_at(CrashPoint.SINK_COMMITS_DONE, 2)) as driver:
        assert driver.wait() == -9, driver.words()
    with started(variant) as driver:
        assert driver.wait() == 0, driver.words()
    verdict = judge(variant.fast, variant.slow, read_results(variant.output))
    assert verdict.is_exactly_once, verdict
