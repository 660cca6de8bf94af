"""Fits to few and bad observations: lines, the bytes of incremental checkpoints, proportions."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.changed_bytes import ChangedBytes, fit_changed_bytes
from penstock.models.fitting.estimate import Estimate, assumed, typical
from penstock.models.fitting.estimate import given as stated
from penstock.models.fitting.proportion import product, proportion
from penstock.models.fitting.robust_fit import constant, fit_line

positive = st.floats(0.001, 1000)
points = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3)), min_size=1, max_size=12)


# -- lines --------------------------------------------------------------------------------------


def test_a_line_is_found_among_outliers() -> None:
    xs = [float(x) for x in range(20)]
    ys = [3 + 2 * x for x in xs]
    for at in (2, 9, 15):
        ys[at] *= 40
    line = fit_line(xs, ys, default_slope=0.0)
    assert line.has_measured_slope
    assert (line.intercept, line.slope) == pytest.approx((3, 2))


@given(positive, positive, st.lists(st.floats(0, 1000), min_size=3, max_size=20, unique=True))
def test_an_exact_line_is_recovered(intercept: float, slope: float, xs: list[float]) -> None:
    if max(xs) - min(xs) <= 0.21 * max(xs):
        return
    line = fit_line(xs, [intercept + slope * x for x in xs], default_slope=7.0)
    assert line.value(500.0) == pytest.approx(intercept + slope * 500, rel=1e-3)


@given(points, st.floats(0, 10))
def test_no_fit_is_negative_or_falls(found: list[tuple[float, float]], default: float) -> None:
    line = fit_line([x for x, _ in found], [y for _, y in found], default_slope=default)
    assert line.slope >= 0
    assert line.intercept >= 0
    at = [line.at(x) for x in (0.0, 1.0, 1e3, 1e7)]
    assert [e.value for e in at] == sorted(e.value for e in at)
    assert all(0 <= e.low <= e.value <= e.high for e in at)


def test_where_x_does_not_vary_the_default_slope_is_taken() -> None:
    line = fit_line([100.0] * 5, [10.0] * 5, default_slope=0.05)
    assert not line.has_measured_slope
    assert (line.intercept, line.slope) == (5.0, 0.05)


def test_a_default_slope_is_no_steeper_than_the_observations_allow() -> None:
    line = fit_line([100.0] * 5, [10.0] * 5, default_slope=3.0)
    assert (line.intercept, line.slope) == pytest.approx((0.0, 0.1))


def test_without_observations_the_defaults_are_the_line_and_its_range_is_wide() -> None:
    line = fit_line([], [], default_slope=2.0, default_intercept=1.0)
    assert line.at(2.0) == Estimate(5.0, 2.5, 10.0, 0)


def test_two_points_far_apart_do_not_show_a_slope() -> None:
    assert not fit_line([1.0, 100.0], [1.0, 100.0], default_slope=0.0).has_measured_slope


def test_a_constant_is_the_median() -> None:
    assert constant([1.0, 2.0, 90.0]).value(1e9) == 2.0
    assert constant([], default=4.0).value(0.0) == 4.0


# -- numbers with a range -----------------------------------------------------------------------


def test_most_observations_are_within_the_range_of_an_estimate() -> None:
    rng = random.Random(5)
    hits = 0
    for _ in range(300):
        values = [rng.gauss(10, 1) for _ in range(15)]
        found = typical(values)
        hits += found.low <= rng.gauss(10, 1) <= found.high
    assert 0.8 < hits / 300 < 0.97


def test_of_one_observation_the_range_is_half_and_twice() -> None:
    assert typical([3.0]) == Estimate(3.0, 1.5, 6.0, 1)
    with pytest.raises(ValueError, match="no observations"):
        typical([])


def test_a_sum_has_a_range_and_the_fewest_observations() -> None:
    found = Estimate(10, 7, 13, 5) + Estimate(20, 16, 24, 3)
    assert found == Estimate(30, 25, 35, 3)
    assert (found + assumed(0.0)).observations == 3
    assert not (stated(1.0) + assumed(2.0)).is_measured


# -- the bytes of incremental checkpoints -------------------------------------------------------


@given(positive, st.floats(0.2, 1.0), st.floats(0.001, 10), st.floats(1e3, 1e10))
def test_bytes_grow_with_the_interval_ever_more_slowly_up_to_the_state(
    interval: float, shape: float, share: float, full: float
) -> None:
    curve = ChangedBytes(full, share * full, shape, 5)
    once, twice, thrice = (curve.at(interval * n) for n in (1, 2, 3))
    assert 0 <= once <= twice <= thrice <= full
    assert twice - once >= (thrice - twice) * (1 - 1e-6) - 1e-9 * full
    assert curve.at(0.0) == 0.0
    assert curve.at(1e12) == pytest.approx(full, rel=1e-3)


@pytest.mark.parametrize("shape", [1.0, 0.6])
def test_the_curve_of_equal_and_of_popular_keys_is_recovered(shape: float) -> None:
    truth = ChangedBytes(1e8, 1e6, shape, 0)
    intervals = [1.0, 2.0, 5.0, 10.0, 20.0, 40.0]
    found = fit_changed_bytes(intervals, [truth.at(t) for t in intervals], [1e8] * 6)
    assert found.has_measured_shape
    assert (found.rate, found.shape) == pytest.approx((1e6, shape), rel=0.02)


def test_checkpoints_of_a_growing_state_show_one_rate_of_changes() -> None:
    sizes = [1e8, 2e8, 3e8, 4e8, 5e8]
    written = [ChangedBytes(size, 1e6, 1.0, 0).at(20.0) for size in sizes]
    found = fit_changed_bytes([20.0] * 5, written, sizes)
    assert found.rate == pytest.approx(1e6, rel=0.05)


def test_one_interval_gives_the_curve_of_equal_keys() -> None:
    found = fit_changed_bytes([10.0] * 5, [1e7] * 5, [1e8] * 5)
    assert (found.shape, found.has_measured_shape) == (1.0, False)
    assert found.at(10.0) == pytest.approx(1e7)
    assert 1e7 < found.at(20.0) < 2e7


def test_full_checkpoints_are_recognized_and_write_everything_at_any_interval() -> None:
    found = fit_changed_bytes([10.0] * 5, [1e8] * 5, [1e8] * 5)
    assert found.is_full
    assert found.at(0.1) == found.at(1000.0) == 1e8
    assert found.scaled(full_bytes=5e8).at(1.0) == 5e8


def test_a_larger_state_with_the_same_changes_writes_about_the_same() -> None:
    curve = ChangedBytes(1e8, 1e5, 1.0, 5)
    larger = curve.scaled(full_bytes=1e10)
    assert larger.at(10.0) == pytest.approx(curve.at(10.0), rel=0.01)
    assert curve.scaled(change=2.0).at(1.0) == pytest.approx(2 * curve.at(1.0), rel=0.01)


def test_a_state_that_does_not_change_or_is_empty_writes_nothing() -> None:
    assert fit_changed_bytes([10.0] * 3, [0.0] * 3, [1e6] * 3).at(100.0) == 0.0
    assert fit_changed_bytes([10.0], [0.0], [0.0]).at(100.0) == 0.0
    assert fit_changed_bytes([], [], []).at(1.0) == 0.0


# -- proportions --------------------------------------------------------------------------------


def test_without_events_nothing_is_known() -> None:
    found = proportion(0, 0)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (10, 10, 0.6915, 1.0),
        (0, 10, 0.0, 0.3085),
        (9, 10, 0.5550, 0.9975),
        (95, 100, 0.8872, 0.9836),
    ],
)
def test_the_exact_interval_is_the_one_in_tables(
    successes: int, trials: int, low: float, high: float
) -> None:
    found = proportion(successes, trials)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-4)


@given(st.integers(0, 200), st.integers(0, 200))
def test_the_interval_contains_the_share_and_is_narrower_with_more_events(a: int, b: int) -> None:
    found = proportion(a, a + b)
    assert 0 <= found.low <= found.value <= found.high <= 1 + 1e-9
    more = proportion(10 * a, 10 * (a + b))
    assert more.high - more.low <= found.high - found.low + 1e-9


def test_the_interval_holds_as_often_as_it_claims() -> None:
    rng = random.Random(7)
    hits = 0
    for _ in range(400):
        successes = sum(rng.random() < 0.9 for _ in range(30))
        found = proportion(successes, 30)
        hits += found.low <= 0.9 <= found.high
    assert hits / 400 >= 0.94


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        proportion(3, 2)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=3))
def test_a_product_is_no_more_certain_than_its_least_certain_factor(
    counts: list[tuple[int, int]],
) -> None:
    parts = [(good, good + bad) for good, bad in counts]
    found = product(parts)
    assert found.value == pytest.approx(math.prod(proportion(*p).value for p in parts))
    assert found.low <= min(proportion(*p).low for p in parts) + 1e-9
    assert found.low <= found.value <= found.high + 1e-9
