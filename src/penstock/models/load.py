"""How many records a job gets and how many it could process: λ, μ and rho = λ/μ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.checkpoint.history import CheckpointStats, Recovery
from penstock.models import defaults
from penstock.models.checkpoint_cost import load_spans, rate_of
from penstock.models.fitting.estimate import Estimate, assumed, typical
from penstock.models.micro_batches import fit_micro_batches

_LEAST_CATCH_UP_S = 1.0
"""A shorter catch-up is a micro-batch or two and shows no rate."""
_NEWEST = 10
"""Intervals and recoveries that show the present rates."""


class CapacitySource(Enum):
    """Where the highest rate of a job is known from."""

    GIVEN = "given"
    CATCH_UP = "measured while the job caught up after recoveries"
    MICRO_BATCHES = "estimated from micro-batches that were not full"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Load:
    """The input rate λ and the highest rate μ of a job, in records per second."""

    rate: Estimate | None
    capacity: Estimate | None
    source: CapacitySource

    @property
    def share(self) -> float | None:
        """rho, None if one of the two is unknown."""
        if self.rate is None or self.capacity is None or self.capacity.value <= 0:
            return None
        return self.rate.value / self.capacity.value


def measure_load(
    checkpoints: Sequence[CheckpointStats],
    recoveries: Sequence[Recovery],
    target_duration_s: float = defaults.TARGET_DURATION_S,
) -> Load:
    """Return the load that the history of a job shows.

    The highest rate is measured in catch-up, when micro-batches are full; while the job keeps up
    they are small, and their fixed cost hides how fast it could be. Without a catch-up it is
    estimated: a micro-batch of the target duration, with the fixed cost and the cost per record of
    those that were run.
    """
    rate = _rate(checkpoints)
    caught_up = [
        r.catch_up_records / (r.caught_up_s - r.catch_up_began_s)
        for r in recoveries
        if r.caught_up_s is not None
        and r.catch_up_began_s is not None
        and r.caught_up_s - r.catch_up_began_s >= _LEAST_CATCH_UP_S
        and r.catch_up_records > 0
    ]
    if caught_up:
        return Load(rate, typical(caught_up[-_NEWEST:]), CapacitySource.CATCH_UP)
    batches = fit_micro_batches([s for c in checkpoints for s in load_spans(c)], target_duration_s)
    if batches is None or batches.highest_rate is None:
        return Load(rate, None, CapacitySource.UNKNOWN)
    return Load(rate, assumed(batches.highest_rate), CapacitySource.MICRO_BATCHES)


def _rate(checkpoints: Sequence[CheckpointStats]) -> Estimate | None:
    """Return the records per second of the newest intervals."""
    rates = [rate for c in checkpoints if (rate := rate_of(c)) is not None]
    return typical(rates[-_NEWEST:]) if rates else None
