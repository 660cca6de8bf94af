"""How many records a job gets and how many it could process: λ, μ and rho = λ/μ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.checkpoint.history import CheckpointStats, LoadStats, Recovery
from penstock.models import defaults
from penstock.models.checkpoint_cost import micro_batch_cost
from penstock.models.estimate import Estimate, assumed, typical

_LEAST_CATCH_UP_S = 1.0
"""A shorter catch-up is a micro-batch or two and shows no rate."""


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
        r.catch_up_records / (r.caught_up_s - r.first_result_s)
        for r in recoveries
        if r.caught_up_s is not None
        and r.first_result_s is not None
        and r.caught_up_s - r.first_result_s >= _LEAST_CATCH_UP_S
        and r.catch_up_records > 0
    ]
    if caught_up:
        return Load(rate, typical(caught_up), CapacitySource.CATCH_UP)
    spans = [s for c in checkpoints for s in (c.load_before, c.load_during) if s is not None]
    estimate = highest_rate(spans, target_duration_s)
    if estimate is None:
        return Load(rate, None, CapacitySource.UNKNOWN)
    return Load(rate, assumed(estimate), CapacitySource.MICRO_BATCHES)


def _rate(checkpoints: Sequence[CheckpointStats]) -> Estimate | None:
    """Return the records per second over the interval of each checkpoint."""
    rates = []
    for record in checkpoints:
        spans = [s for s in (record.load_before, record.load_during) if s is not None]
        seconds = sum(s.seconds for s in spans)
        if record.load_before is not None and seconds > 0:
            rates.append(sum(s.records for s in spans) / seconds)
    return typical(rates) if rates else None


def highest_rate(spans: Sequence[LoadStats], target_duration_s: float) -> float | None:
    """Return the records per second of micro-batches of the target duration, None if unknown.

    As `MicroBatchSizer` decides: where the fixed cost is near the target, the work is not made
    smaller than the fixed cost.
    """
    fixed, per_record = micro_batch_cost(spans)
    read, processed = sum(s.records for s in spans), sum(s.region_records for s in spans)
    if per_record <= 0 or processed <= 0 or read <= 0:
        return None
    working = max(target_duration_s - fixed, fixed)
    # The busiest region may see more or fewer records than the sources read.
    return working / per_record / (working + fixed) * read / processed
