"""How many records a job gets and how many it could process: λ, μ and rho = λ/μ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from penstock.checkpoint.history import CheckpointStats, Recovery
from penstock.models import defaults
from penstock.models.checkpoint_cost import load_spans, rate_of
from penstock.models.fitting.estimate import Estimate, assumed, typical
from penstock.models.micro_batches import fit_micro_batches

_LEAST_CATCH_UP_S = 1.0
"""A shorter catch-up is a micro-batch or two and shows no rate."""
_SUSTAINED_PERCENT = 90
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
    rate, sustained = _rate(checkpoints), _sustained_rate(checkpoints)
    caught_up = [
        r.catch_up_records / (r.caught_up_s - r.catch_up_began_s)
        for r in recoveries
        if r.caught_up_s is not None
        and r.catch_up_began_s is not None
        and r.caught_up_s - r.catch_up_began_s >= _LEAST_CATCH_UP_S
        and r.catch_up_records > 0
    ]
    if caught_up:
        measured = _at_least(typical(caught_up[-_NEWEST:]), sustained)
        return Load(rate, measured, CapacitySource.CATCH_UP)
    batches = fit_micro_batches([s for c in checkpoints for s in load_spans(c)], target_duration_s)
    if batches is None or batches.highest_rate is None:
        return Load(rate, None, CapacitySource.UNKNOWN)
    estimated = _at_least(assumed(batches.highest_rate), sustained)
    return Load(rate, estimated, CapacitySource.MICRO_BATCHES)


def _rate(checkpoints: Sequence[CheckpointStats]) -> Estimate | None:
    """Return the records per second of the newest intervals."""
    rates = [rate for c in checkpoints if (rate := rate_of(c)) is not None]
    return typical(rates[-_NEWEST:]) if rates else None


def _sustained_rate(checkpoints: Sequence[CheckpointStats]) -> float:
    """Return the records per second that were processed over a whole interval, at most.

    Counted where the tasks work most: sources may read ahead. One interval in ten is left out.
    """
    spans = [load_spans(c) for c in checkpoints]
    read = sum(s.records for both in spans for s in both)
    processed = sum(s.region_records for both in spans for s in both)
    rates = [
        sum(s.region_records for s in both) * read / processed / sum(s.seconds for s in both)
        for both in spans
        if processed and sum(s.seconds for s in both) >= _LEAST_CATCH_UP_S
    ]
    return float(np.percentile(rates, _SUSTAINED_PERCENT)) if rates else 0.0


def _at_least(capacity: Estimate, sustained: float) -> Estimate:
    """Return a capacity that is not below what the job has processed already."""
    if sustained <= capacity.low:
        return capacity
    value = max(capacity.value, sustained)
    return Estimate(value, sustained, max(capacity.high, value), capacity.observations)
