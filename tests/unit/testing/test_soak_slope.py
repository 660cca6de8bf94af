"""The slopes that a soak prints."""

from __future__ import annotations

import random

import pytest

from tests.soak.slope import slope_of


def test_a_constant_does_not_grow() -> None:
    slope = slope_of([(float(t), 100.0) for t in range(0, 600, 5)])
    assert slope.percent_per_hour == pytest.approx(0.0)
    assert not slope.is_growth


def test_two_percent_per_hour_are_growth() -> None:
    slope = slope_of([(float(t), 100.0 + t / 1800) for t in range(0, 600, 5)])
    assert slope.percent_per_hour == pytest.approx(2.0, rel=0.01)
    assert slope.is_growth


def test_scatter_is_not_growth() -> None:
    rng = random.Random(3)
    samples = [(float(t), 100.0 + rng.uniform(-20, 20)) for t in range(0, 600, 5)]
    assert not slope_of(samples).is_growth
