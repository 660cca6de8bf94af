"""How many bytes an incremental checkpoint writes, by interval: concave, as keys repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.models.fitting.robust_fit import fit_line

_FULL_SHARE = 0.9
"""If checkpoints typically write more of the state than this, they are full ones."""
_MOST = 0.98
"""Of the state; nearer to 1 the logarithm only amplifies noise."""
_LEAST_RATIO = 1.5
"""Between the shortest and the longest interval, to fit the shape of the curve."""
_FEWEST = 4
_LEAST_SHAPE = 0.1


@dataclass(frozen=True, slots=True)
class ChangedBytes:
    """`bytes(T) = F * (1 - exp(-(c * T / F)^k))`, with the size F of the whole state.

    With `k = 1` this is the share of equally frequent keys that are touched in T; popular keys
    make it flatter, `k < 1`. A rate of infinity stands for checkpoints that write everything.
    """

    full_bytes: float
    rate: float
    """c, bytes per second as long as no key repeats."""
    shape: float
    """k, above 0 and at most 1."""
    observations: int
    has_measured_shape: bool = False

    @property
    def is_full(self) -> bool:
        """Whether every checkpoint writes the whole state."""
        return math.isinf(self.rate)

    def at(self, interval_s: float) -> float:
        """Return the bytes of a checkpoint that is taken so long after the one before."""
        if self.is_full or self.full_bytes <= 0:
            return self.full_bytes
        touched = (self.rate * max(0.0, interval_s) / self.full_bytes) ** self.shape
        return self.full_bytes * -math.expm1(-touched)

    def scaled(self, *, full_bytes: float | None = None, change: float = 1.0) -> ChangedBytes:
        """Return the curve of a state of another size, or with another rate of changes."""
        full = self.full_bytes if full_bytes is None else full_bytes
        return replace(self, full_bytes=full, rate=self.rate * change)


def fit_changed_bytes(
    intervals_s: Sequence[float], new_bytes: Sequence[float], full_bytes: Sequence[float]
) -> ChangedBytes:
    """Fit the curve to checkpoints: the time since the one before, and their sizes.

    An interval with fewer records than now counts as a shorter one. The first checkpoint of an
    attempt, which writes more than what changed, is best left out; a few of them do no harm.
    """
    if not full_bytes:
        return ChangedBytes(0.0, 0.0, 1.0, 0)
    # The newest: state grows.
    full = float(np.median(np.asarray(full_bytes[-5:], dtype=float)))
    seen = [
        (t, min(new / whole, 1.0), whole)
        for t, new, whole in zip(intervals_s, new_bytes, full_bytes, strict=True)
        if t > 0 and whole > 0
    ]
    if not seen or full <= 0:
        return ChangedBytes(full, 0.0, 1.0, len(full_bytes))
    if float(np.median([share for _, share, _ in seen])) >= _FULL_SHARE:
        return ChangedBytes(full, math.inf, 1.0, len(seen))
    # Of each: time per byte of state, z = (c T / F)^k, and the state.
    changed = [
        (t / whole, -math.log1p(-min(share, _MOST)), t, whole)
        for t, share, whole in seen
        if share > 0
    ]
    if not changed:
        return ChangedBytes(full, 0.0, 1.0, len(seen))
    times = [t for t, _, _, _ in changed]
    shape, is_measured = 1.0, False
    if len(changed) >= _FEWEST and max(times) >= _LEAST_RATIO * min(times):
        # A shift does not change the slope, and x and y must not be negative for the line.
        lowest = min(z for _, z, _, _ in changed)
        line = fit_line(
            [math.log(t / min(times)) for t in times],
            [math.log(z / lowest) for _, z, _, _ in changed],
            default_slope=1.0,
        )
        shape, is_measured = min(1.0, max(_LEAST_SHAPE, line.slope)), line.has_measured_slope
    rates = [z ** (1 / shape) * whole / t for _, z, t, whole in changed]
    return ChangedBytes(full, float(np.median(rates)), shape, len(changed), is_measured)
