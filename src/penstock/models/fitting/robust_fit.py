"""Fits a straight line through few observations, of which some may be outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.models.fitting.estimate import Estimate, around, sigma_of

_LEAST_SPREAD = 0.2
"""If all x are this close to each other, relative to the largest, nothing shows the slope."""
_FEWEST = 3
_NO_DISTANCE = 1e-9
"""Of two x, relative to the largest: such a pair shows no slope."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Line:
    """`y = intercept + slope * x`, neither of them negative."""

    intercept: float
    slope: float
    sigma: float
    """Standard deviation around the line; infinite if there are too few observations."""
    observations: int
    has_measured_slope: bool = False
    """Whether the observations show the slope; otherwise a default was taken."""

    def at(self, x: float) -> Estimate:
        """Predict y."""
        return around(self.value(x), self.sigma, self.observations)

    def value(self, x: float) -> float:
        """Predict y, without a range."""
        return self.intercept + self.slope * max(0.0, x)


def constant(ys: Sequence[float], default: float = 0.0) -> Line:
    """Return a line that does not depend on x: the median, or a default without observations."""
    return fit_line([0.0] * len(ys), ys, default_slope=0.0, default_intercept=default)


def fit_line(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    default_slope: float,
    default_intercept: float = 0.0,
) -> Line:
    """Fit a line by the weighted median of all pairwise slopes (Theil and Sen).

    A pair counts by its distance in x, because noise hardly changes the slope of a distant pair.
    More than a fifth of the observations may be outliers. Where x hardly varies, or with fewer
    than three observations, the slope is the default, but not more than the observations allow
    without a negative intercept.
    """
    if not ys:
        return Line(default_intercept, default_slope, math.inf, 0)
    x: Array = np.asarray(xs, dtype=float)
    y: Array = np.maximum(0.0, np.asarray(ys, dtype=float))
    is_spread = len(y) >= _FEWEST and float(np.ptp(x)) > _LEAST_SPREAD * float(np.max(np.abs(x)))
    slope = max(0.0, _theil_sen(x, y)) if is_spread else default_slope
    intercept = float(np.median(y - slope * x))
    if intercept < 0:
        intercept = 0.0
        slope = _weighted_median(y[x > 0] / x[x > 0], x[x > 0]) if np.any(x > 0) else 0.0
    residuals = [float(r) for r in y - (intercept + slope * x)]
    sigma = sigma_of(residuals, parameters=2 if is_spread else 1)
    return Line(intercept, slope, sigma, len(y), is_spread)


def _theil_sen(x: Array, y: Array) -> float:
    first, second = np.triu_indices(len(x), 1)
    dx, dy = x[second] - x[first], y[second] - y[first]
    differs = np.abs(dx) > _NO_DISTANCE * float(np.max(np.abs(x)))
    return _weighted_median(dy[differs] / dx[differs], np.abs(dx[differs]))


def _weighted_median(values: Array, weights: Array) -> float:
    """Return the value that half of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    summed = np.cumsum(weights[order])
    middle = int(np.searchsorted(summed, summed[-1] / 2))
    return float(values[order][middle])
