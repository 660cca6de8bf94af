"""How fast a measured quantity grows: a least-squares line through its samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT = 1.0
"""Percent per hour that a quantity may grow."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The growth of a quantity, in percent of its mean per hour."""

    percent_per_hour: float
    error: float
    """Twice the standard error of it."""
    mean: float

    @property
    def is_growth(self) -> bool:
        """Whether it grows faster than the limit, beyond what the samples scatter."""
        return self.percent_per_hour - self.error > LIMIT


def slope_of(samples: Sequence[tuple[float, float]]) -> Slope:
    """Return the slope of (seconds, value) samples; at least three are needed."""
    count = len(samples)
    mean_x = sum(x for x, _ in samples) / count
    mean_y = sum(y for _, y in samples) / count
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    steepness = sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread
    rest = sum((y - mean_y - steepness * (x - mean_x)) ** 2 for x, y in samples)
    error = math.sqrt(rest / (count - 2) / spread)
    scale = 3600 * 100 / mean_y if mean_y else 0.0
    return Slope(steepness * scale, 2 * error * scale, mean_y)
