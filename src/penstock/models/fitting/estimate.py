"""Numbers with a range: measured ones, and those assumed where nothing was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.9
"""The share of future observations that should be within the range of an estimate."""
_NORMAL_QUANTILE = 1.645
"""Of the standard normal distribution, for a two-sided range of `CONFIDENCE`."""
_MAD_TO_SIGMA = 1.4826
_UNKNOWN_FACTOR = 2.0
"""Of one or two observations nobody knows the spread: half and twice the value."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, the range in which the next observation is expected, and what it is based on."""

    value: float
    low: float
    high: float
    observations: int
    """How many; 0 if the number was given by the user or is a documented default."""

    @property
    def is_measured(self) -> bool:
        """Whether it was computed from the history of a job."""
        return self.observations > 0

    def __add__(self, other: Estimate) -> Estimate:
        """Add two independent numbers; the sum was observed as often as the rarer one."""
        value = self.value + other.value
        below = math.hypot(self.value - self.low, other.value - other.low)
        above = math.hypot(self.high - self.value, other.high - other.value)
        seen = [n for n in (self.observations, other.observations) if n]
        return Estimate(value, max(0.0, value - below), value + above, min(seen, default=0))


def given(value: float) -> Estimate:
    """Return a number that somebody states; it has no range."""
    return Estimate(value, value, value, 0)


def assumed(value: float) -> Estimate:
    """Return a documented default, which may be wrong by a factor."""
    return around(value, math.inf, 0)


def around(value: float, sigma: float, observations: int) -> Estimate:
    """Return a number that is not negative, with its range; `sigma` is infinite if unknown."""
    if not math.isfinite(sigma):
        return Estimate(value, value / _UNKNOWN_FACTOR, value * _UNKNOWN_FACTOR, observations)
    # The median is itself uncertain.
    reach = _NORMAL_QUANTILE * sigma * math.sqrt(1 + 1 / max(observations, 1))
    return Estimate(value, max(0.0, value - reach), value + reach, observations)


def sigma_of(residuals: Sequence[float], parameters: int = 1) -> float:
    """Return a standard deviation that a few outliers do not change; infinite if unknown."""
    if len(residuals) < parameters + 2:
        return math.inf
    values = np.asarray(residuals, dtype=float)
    return float(_MAD_TO_SIGMA * np.median(np.abs(values - np.median(values))))


def typical(values: Sequence[float]) -> Estimate:
    """Return the median of some observations with its range.

    Raises:
        ValueError: there are none.
    """
    if not values:
        message = "no observations"
        raise ValueError(message)
    median = float(np.median(np.asarray(values, dtype=float)))
    return around(max(0.0, median), sigma_of(values), len(values))
