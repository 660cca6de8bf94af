"""All models of one job together, fitted to its history or assumed before it exists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.checkpoint.history import CheckpointStats, ExceptionRecord, Recovery
from penstock.models import defaults
from penstock.models.checkpoint_cost import (
    CheckpointCostModel,
    assumed_checkpoint_cost,
    fit_checkpoint_cost,
    observe_checkpoints,
)
from penstock.models.consistency import Consistency, measure_consistency
from penstock.models.fitting.estimate import Estimate, around, given
from penstock.models.interval import load_while_checkpointing
from penstock.models.load import CapacitySource, Load, measure_load
from penstock.models.recovery_time import FailureKind, RecoveryModel, fit_recovery

_DAY_S = 86_400.0
_FEWEST_FAILURES = 3
"""With fewer, the history is too short to say how often a job fails."""


@dataclass(frozen=True, slots=True)
class JobModel:
    """What is known about a job."""

    cost: CheckpointCostModel
    recovery: RecoveryModel
    load: Load
    interval_s: float | None
    """The interval that is configured or, if that is not known, the one observed."""
    observed_interval_s: float | None
    """The interval that the history shows."""
    failures_per_day: Estimate | None
    consistency: Consistency | None
    parallelism: int | None = None

    @property
    def load_without_checkpoints(self) -> float | None:
        """λ/μ₀: a rate that was measured while checkpointing is lower than μ₀."""
        share = self.load.share
        if share is None or self.load.source is not CapacitySource.CATCH_UP:
            return share
        interval = self.observed_interval_s
        if interval is None:
            return share
        lost = self.cost.at(interval).lost.value
        return share * max(0.0, 1 - lost / interval) if interval > 0 else share

    def load_at(self, interval_s: float) -> float | None:
        """Return rho with a checkpoint every so many seconds, None if it is unknown."""
        share = self.load_without_checkpoints
        if share is None:
            return None
        return load_while_checkpointing(share, self.cost.at(interval_s).lost.value, interval_s)

    def load_range_at(self, interval_s: float) -> Estimate | None:
        """Return rho with the range that the ranges of rate and capacity give it."""
        value, rate, capacity = self.load_at(interval_s), self.load.rate, self.load.capacity
        if value is None or rate is None or capacity is None or rate.value <= 0:
            return None
        low = value * rate.low / rate.value * capacity.value / capacity.high
        high = math.inf
        if capacity.low > 0:
            high = value * rate.high / rate.value * capacity.value / capacity.low
        return Estimate(value, low, high, capacity.observations)

    def at_rate(
        self,
        rate: float | None = None,
        capacity: float | None = None,
        state_bytes: float | None = None,
    ) -> JobModel:
        """Return the model with another rate, capacity or size of state, each None to keep it.

        The state changes as much faster as there are more records.
        """
        load, cost = self.load, self.cost
        change = 1.0
        if rate is not None:
            before = load.rate
            if before is not None and before.is_measured and before.value > 0:
                change = rate / before.value
            load = replace(load, rate=given(rate))
        if capacity is not None:
            load = replace(load, capacity=given(capacity), source=CapacitySource.GIVEN)
        return replace(self, load=load, cost=cost.for_state(state_bytes, change=change, rate=rate))


def fit_job(
    checkpoints: Sequence[CheckpointStats],
    recoveries: Sequence[Recovery],
    exceptions: Sequence[ExceptionRecord],
    *,
    parallelism: int | None = None,
    interval_s: float | None = None,
    target_duration_s: float = defaults.TARGET_DURATION_S,
) -> JobModel | None:
    """Fit all models to the history of a job; None if it has no completed checkpoint.

    The configured interval and target duration of micro-batches are given if they are known.
    """
    cost = fit_checkpoint_cost(checkpoints, target_duration_s)
    if cost is None:
        return None
    # A driver that dies takes the longest, so the targets are for that unless it never happens.
    kinds = [FailureKind.of(r) for r in recoveries]
    only_inside = FailureKind.ATTEMPT in kinds and FailureKind.DRIVER not in kinds
    kind = FailureKind.ATTEMPT if only_inside else FailureKind.DRIVER
    observed = observed_interval(checkpoints)
    return JobModel(
        cost=cost,
        recovery=fit_recovery(recoveries, checkpoints, kind),
        load=measure_load(checkpoints, recoveries, target_duration_s),
        interval_s=observed if interval_s is None else interval_s,
        observed_interval_s=observed,
        failures_per_day=_failures_per_day(checkpoints, recoveries),
        consistency=measure_consistency(checkpoints, recoveries, exceptions),
        parallelism=parallelism,
    )


def assumed_job(
    state_bytes: float,
    rate: float | None,
    capacity: float | None,
    *,
    changed_bytes_per_s: float | None = None,
    incremental: bool = True,
    parallelism: int | None = None,
) -> JobModel:
    """Return the model of a job that does not exist yet, from documented defaults."""
    if changed_bytes_per_s is None:
        changed_bytes_per_s = (rate or 0.0) * defaults.CHANGED_PER_RECORD_BYTES
    cost = assumed_checkpoint_cost(state_bytes, changed_bytes_per_s, incremental=incremental)
    load = Load(
        None if rate is None else given(rate),
        None if capacity is None else given(capacity),
        CapacitySource.UNKNOWN if capacity is None else CapacitySource.GIVEN,
    )
    recovery = fit_recovery([], [], FailureKind.DRIVER)
    return JobModel(cost, recovery, load, None, None, None, None, parallelism)


def observed_interval(checkpoints: Sequence[CheckpointStats]) -> float | None:
    """Return the time between periodic checkpoints that the newest attempts show."""
    seen = observe_checkpoints(checkpoints)
    newest = [o.interval_s for o in seen if o.interval_s is not None and o.is_periodic][-10:]
    return float(np.median(np.asarray(newest))) if newest else None


def _failures_per_day(
    checkpoints: Sequence[CheckpointStats], recoveries: Sequence[Recovery]
) -> Estimate | None:
    """Return how often the job failed, from the time between the first and the last failure."""
    times = sorted(r.time for r in recoveries if FailureKind.of(r) is not FailureKind.START)
    if len(times) < _FEWEST_FAILURES:
        return None
    until = max([times[-1], *(c.triggered for c in checkpoints)])
    if until <= times[0]:
        return None
    # The time since the last failure counts too; the first failure only starts the clock.
    days = (until - times[0]) / _DAY_S
    count = len(times) - 1
    return around(count / days, count**0.5 / days, count)
