"""Advice: an interval within its bounds, and what to change if there is none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models import interval as formulas
from penstock.models.advice import Advice, BoundKind, Goals, Verdict, advise, outcome
from penstock.models.job_model import JobModel, assumed_job, fit_job
from penstock.models.levers import Input
from penstock.models.round_interval import format_interval, round_interval
from tests.unit.models.histories import MB, history, recovery


def job(
    interval_s: float = 10.0,
    *,
    rate: float = 1200.0,
    lost_s: float = 0.1,
    downtime_s: float = 5.0,
    parallelism: int | None = 4,
) -> JobModel:
    """A job that can process 2,000 records a second, and writes a little at each checkpoint."""
    records = history(12, interval_s, rate=rate, lost_s=lost_s, full_bytes=10 * MB)
    seen = [
        recovery(n, detect_s=1.0, redeploy_s=downtime_s - 2.53, load_state_s=0.5) for n in (2, 3, 4)
    ]
    model = fit_job(records, seen, [], parallelism=parallelism)
    assert model is not None
    return model


def bound(advice: Advice, kind: BoundKind, *, upper: bool) -> float:
    return next(b.seconds for b in advice.bounds if b.kind is kind and b.is_upper is upper)


def test_an_interval_within_all_bounds_is_fine() -> None:
    found = advise(job(10.0), Goals(recovery_target_s=60.0))
    assert found.verdict is Verdict.FINE
    assert found.current is not None
    assert found.lower.seconds <= 10.0 <= found.upper.seconds


def test_an_interval_that_recovers_too_slowly_is_changed_to_one_that_meets_the_target() -> None:
    found = advise(job(300.0), Goals(recovery_target_s=60.0))
    assert found.verdict is Verdict.CHANGE
    assert found.recommended is not None
    assert found.current is not None
    assert found.recommended.normal_worst_s is not None
    assert found.recommended.normal_worst_s <= 60.0
    assert found.current.normal_worst_s is not None
    assert found.current.normal_worst_s > 60.0


def test_the_recovery_bound_is_the_formulas() -> None:
    model = job(10.0, lost_s=0.0)
    found = bound(advise(model, Goals(recovery_target_s=60.0)), BoundKind.RECOVERY, upper=True)
    at = outcome(model, found)
    assert at.load is not None
    expected = formulas.highest_for_recovery(60.0, at.load, at.downtime_s, at.duration_s)
    assert found == pytest.approx(expected, rel=1e-3)


def test_visibility_limits_the_interval() -> None:
    found = advise(job(10.0), Goals(recovery_target_s=None, visibility_s=5.0))
    assert found.recommended is not None
    assert found.upper.kind is BoundKind.VISIBILITY
    assert found.recommended.visible_worst_s <= 5.0


def test_overhead_limits_the_interval_from_below() -> None:
    found = advise(job(10.0, lost_s=0.5), Goals(overhead=0.01))
    assert found.lower.kind is BoundKind.OVERHEAD
    assert found.lower.seconds == pytest.approx(50.0, rel=0.1)


def test_within_the_bounds_daly_decides() -> None:
    model = job(10.0, lost_s=0.5)
    found = advise(model, Goals(recovery_target_s=600.0, failures_per_day=24.0))
    assert found.cheapest_s == pytest.approx(60.0, rel=0.05)
    assert found.recommended is not None
    assert found.recommended.interval_s == pytest.approx(found.cheapest_s, rel=0.2)


def test_rare_failures_do_not_lead_beyond_the_recovery_target() -> None:
    found = advise(job(10.0), Goals(recovery_target_s=60.0, failures_per_day=0.001))
    assert found.cheapest_s > 10 * found.upper.seconds
    assert found.recommended is not None
    assert found.recommended.interval_s <= found.upper.seconds


def test_a_load_that_is_too_high_needs_more_parallelism() -> None:
    found = advise(job(10.0, rate=1960.0), Goals(recovery_target_s=60.0))
    assert found.verdict is Verdict.IMPOSSIBLE
    assert found.recommended is None
    lever = next(one for one in found.levers if one.input is Input.LOAD)
    assert lever.needed < lever.now
    assert ("parallelism.default", "5") in lever.configuration
    # With what it asks for, there is an interval.
    model = job(10.0, rate=1960.0)
    before = model.load_without_checkpoints
    assert before is not None
    enough = model.at_rate(capacity=1960.0 / before * lever.now / lever.needed * 1.001)
    assert advise(enough, Goals(recovery_target_s=60.0)).recommended is not None


def test_a_downtime_above_the_target_is_named_and_only_a_longer_target_helps() -> None:
    found = advise(job(10.0, downtime_s=50.0), Goals(recovery_target_s=40.0))
    assert found.verdict is Verdict.IMPOSSIBLE
    assert Input.LOAD not in {lever.input for lever in found.levers}
    lever = next(one for one in found.levers if one.input is Input.RECOVERY_TARGET)
    assert lever.needed > 50.0
    longer = Goals(recovery_target_s=lever.needed * 1.05)
    assert advise(job(10.0, downtime_s=50.0), longer).recommended is not None


def test_full_checkpoints_that_cost_too_much_should_be_incremental() -> None:
    model = assumed_job(50e9, 1000.0, 4000.0, incremental=False)
    found = advise(model, Goals(recovery_target_s=None, visibility_s=700.0))
    assert found.verdict is Verdict.IMPOSSIBLE
    cost = next(one for one in found.levers if one.input is Input.COST)
    assert ("execution.checkpointing.incremental", "true") in cost.configuration
    incremental = assumed_job(50e9, 1000.0, 4000.0, incremental=True)
    again = advise(incremental, Goals(recovery_target_s=None, visibility_s=700.0))
    assert again.recommended is not None


def test_a_job_that_cannot_keep_up_is_told_so() -> None:
    found = advise(job(10.0).at_rate(rate=2500.0), Goals())
    assert found.verdict is Verdict.IMPOSSIBLE
    assert bound(found, BoundKind.KEEP_UP, upper=False) == math.inf
    assert found.levers[0].input is Input.LOAD


def test_the_smallest_change_comes_first() -> None:
    found = advise(job(10.0, rate=1960.0), Goals(recovery_target_s=60.0))
    changes = [abs(math.log(one.needed / one.now)) for one in found.levers if one.now]
    assert len(changes) > 1
    assert changes == sorted(changes)


def test_a_job_whose_load_is_unknown_gets_an_interval_without_the_recovery_bound() -> None:
    found = advise(assumed_job(2e9, None, None), Goals(recovery_target_s=60.0))
    assert found.verdict is Verdict.NEW
    assert BoundKind.RECOVERY not in {b.kind for b in found.bounds}
    assert found.recommended is not None
    assert found.recommended.normal_worst_s is None


def test_jobs_that_never_fail_and_jobs_without_limits_get_an_interval() -> None:
    goals = Goals(recovery_target_s=None, failures_per_day=0.0)
    found = advise(job(10.0), goals)
    assert found.recommended is not None
    assert found.recommended.interval_s == 86_400.0


@given(
    st.floats(1e3, 1e11),
    st.floats(1.0, 1e6),
    st.floats(0.05, 3.0),
    st.floats(1.0, 3600.0),
    st.one_of(st.none(), st.floats(0.5, 600.0)),
    st.floats(0.001, 0.5),
    st.floats(0.0, 1000.0),
    st.booleans(),
)
def test_every_recommendation_is_within_all_bounds_and_otherwise_something_is_named(
    state: float,
    rate: float,
    share: float,
    target: float,
    visibility: float | None,
    overhead: float,
    failures: float,
    incremental: bool,
) -> None:
    model = assumed_job(state, rate, rate / share, incremental=incremental)
    goals = Goals(target, visibility, overhead, failures)
    found = advise(model, goals)
    if found.recommended is None:
        assert found.verdict is Verdict.IMPOSSIBLE
        return
    at = found.recommended
    slack = 1 + 1e-6
    assert at.overhead <= overhead * slack
    assert at.load is not None
    assert at.load < 1
    assert at.normal_worst_s is not None
    assert at.normal_worst_s <= target * slack
    assert visibility is None or at.visible_worst_s <= visibility * slack
    assert at.duration_s <= at.interval_s * slack


@given(st.floats(5.0, 1000.0), st.floats(1.0, 10.0))
def test_a_longer_recovery_target_allows_longer_intervals(target: float, factor: float) -> None:
    model = assumed_job(1e8, 1000.0, 4000.0)
    strict, loose = (
        bound(advise(model, Goals(recovery_target_s=s)), BoundKind.RECOVERY, upper=True)
        for s in (target, target * factor)
    )
    assert strict <= loose * (1 + 1e-9)


# -- round numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.037, "40 ms"),
        (1.47, "1500 ms"),
        (31.2, "30 s"),
        (56.0, "60 s"),
        (85.0, "90 s"),
        (416.0, "7 min"),
        (3500.0, "1 h"),
    ],
)
def test_intervals_are_round_and_as_flink_writes_them(seconds: float, text: str) -> None:
    found = format_interval(round_interval(seconds, 0.0, math.inf))
    assert found == {"60 s": "1 min"}.get(text, text)


@given(st.floats(0.02, 80_000), st.floats(0.5, 1.0), st.floats(1.0, 2.0))
def test_rounding_stays_within_the_bounds(seconds: float, down: float, up: float) -> None:
    lower, upper = seconds * down, seconds * up
    assert lower <= round_interval(seconds, lower, upper) <= upper
