"""Formulas for intervals, against the numbers they were derived with."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models import interval

HOUR, DAY = 3600.0, 86_400.0
costs = st.floats(0.001, 100)
means = st.floats(60, 1e7)
loads = st.floats(0.01, 0.99)
seconds = st.floats(0.0, 1000)


@pytest.mark.parametrize(
    ("cost", "mean", "expected"), [(0.2, HOUR, 38), (1, HOUR, 85), (1, DAY, 416)]
)
def test_young_daly_and_the_optimum_agree(cost: float, mean: float, expected: float) -> None:
    for formula in (interval.young, interval.daly, interval.optimal):
        assert formula(cost, mean) == pytest.approx(expected, rel=0.01)


@given(costs, means)
def test_the_optimum_is_better_than_intervals_near_it(cost: float, mean: float) -> None:
    def useful(t: float) -> float:
        return (t - cost) / math.expm1(t / mean)

    best = interval.optimal(cost, mean)
    assert best > cost
    assert useful(best) >= useful(best * 1.01) * (1 - 1e-9)
    assert useful(best) >= useful(max(cost, best * 0.99)) * (1 - 1e-9)


@given(costs, means)
def test_dalys_interval_is_near_the_optimum_even_for_frequent_failures(
    cost: float, mean: float
) -> None:
    assert interval.daly(cost, mean) == pytest.approx(interval.optimal(cost, mean), rel=0.12)


@given(costs, means, st.floats(1, 10))
def test_expensive_checkpoints_and_rare_failures_make_intervals_longer(
    cost: float, mean: float, factor: float
) -> None:
    for formula in (interval.young, interval.daly, interval.optimal):
        assert formula(cost * factor, mean) >= formula(cost, mean) * (1 - 1e-9)
        assert formula(cost, mean * factor) >= formula(cost, mean) * (1 - 1e-9)


def test_the_optimum_of_checkpoints_that_cost_hardly_anything_is_precise() -> None:
    assert interval.optimal(1e-9, 1e6) == pytest.approx(interval.young(1e-9, 1e6), rel=1e-6)
    assert interval.optimal(0.0, HOUR) == 0.0


@pytest.mark.parametrize(
    ("load", "every", "mean", "worst"),
    [
        (0.6, 1, 14, 15),
        (0.6, 10, 21, 28),
        (0.6, 60, 58, 103),
        (0.8, 1, 29, 31),
        (0.8, 10, 47, 67),
        (0.8, 60, 147, 267),
    ],
)
def test_the_time_to_normal_by_load_and_interval(
    load: float, every: float, mean: float, worst: float
) -> None:
    found = [
        interval.time_to_normal(5, load, interval.age(every, 0.5, worst=w)) for w in (False, True)
    ]
    assert found == pytest.approx([mean, worst], abs=0.51)


@pytest.mark.parametrize(("load", "longest"), [(0.6, 31), (0.8, 8), (0.9, 0.6)])
def test_the_longest_interval_for_a_recovery_within_a_minute(load: float, longest: float) -> None:
    found = interval.highest_for_recovery(60, load, 5, 0.5)
    assert found == pytest.approx(longest, rel=0.04)


@given(loads, seconds, seconds, st.floats(0.1, 1000))
def test_the_longest_interval_meets_the_target_exactly(
    load: float, downtime: float, duration: float, target: float
) -> None:
    longest = interval.highest_for_recovery(target, load, downtime, duration)
    reached = interval.time_to_normal(downtime, load, interval.age(longest, duration, worst=True))
    assert reached == pytest.approx(target, rel=1e-6, abs=1e-6)


@given(loads, seconds, st.floats(0.1, 1000), st.floats(0.1, 1000))
def test_the_needed_load_and_downtime_meet_the_target(
    load: float, downtime: float, duration: float, every: float
) -> None:
    worst = interval.age(every, duration, worst=True)
    target = downtime + 10.0
    needed = interval.highest_load_for_recovery(target, downtime, duration, every)
    assert interval.time_to_normal(downtime, needed, worst) == pytest.approx(target, rel=1e-6)
    down = interval.highest_downtime_for_recovery(target, load, duration, every)
    assert interval.time_to_normal(down, load, worst) == pytest.approx(target, rel=1e-6, abs=1e-6)


@given(loads, seconds, seconds, st.floats(0, 100))
def test_the_time_to_normal_grows_with_each_of_its_inputs(
    load: float, downtime: float, age: float, more: float
) -> None:
    base = interval.time_to_normal(downtime, load, age)
    assert base >= downtime
    assert interval.time_to_normal(downtime + more, load, age) >= base
    assert interval.time_to_normal(downtime, load, age + more) >= base
    assert interval.time_to_normal(downtime, min(0.999, load * 1.01), age) >= base


def test_the_limits_of_no_load_and_full_load() -> None:
    assert interval.time_to_normal(5, 0.0, 100) == 5
    assert interval.time_to_normal(5, 1.0, 0) == math.inf
    assert interval.highest_for_recovery(60, 0.0, 5, 1) == math.inf
    assert interval.highest_for_recovery(4, 0.0, 5, 1) == -math.inf


@given(costs, st.floats(0.001, 1), loads)
def test_lower_bounds_hold_exactly_at_the_bound(cost: float, share: float, load: float) -> None:
    assert cost / interval.lowest_for_overhead(cost, share) == pytest.approx(share)
    lowest = interval.lowest_to_keep_up(cost, load)
    assert interval.load_while_checkpointing(load, cost, lowest) == pytest.approx(1.0)
    assert interval.load_while_checkpointing(load, cost, lowest * 2) < 1


def test_lower_bounds_of_free_and_of_impossible_checkpoints() -> None:
    assert interval.lowest_for_overhead(0.0, 0.0) == 0.0
    assert interval.lowest_for_overhead(1.0, 0.0) == math.inf
    assert interval.lowest_to_keep_up(1.0, 1.0) == math.inf
    assert interval.load_while_checkpointing(0.5, 2.0, 1.0) == math.inf
    assert interval.load_while_checkpointing(0.0, 2.0, 1.0) == 0.0


def test_output_is_visible_after_the_interval_and_the_checkpoint() -> None:
    assert interval.highest_for_visibility(5.0, 0.5) == 4.5
    assert interval.age(10.0, 0.5, worst=False) == 5.5
