"""How long a recovery takes: R = detect + redeploy + load state + reset sources + reset sinks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.checkpoint.history import CheckpointStats, Recovery
from penstock.models import defaults
from penstock.models.fitting.estimate import Estimate, assumed, typical
from penstock.models.fitting.robust_fit import Line, fit_line
from penstock.models.interval import time_to_normal

_DRIVER_DIED = "the driver died"
_STARTED = "started from a snapshot"
_NEWEST = 10
"""Recoveries that show how long one takes now: machines and settings change."""


class FailureKind(Enum):
    """What failed: a new driver has to start Spark first."""

    DRIVER = "driver died"
    ATTEMPT = "failed inside the driver"
    START = "started from a snapshot"

    @classmethod
    def of(cls, recovery: Recovery) -> FailureKind:
        """Return what a recorded recovery recovered from."""
        if recovery.cause.startswith(_DRIVER_DIED):
            return cls.DRIVER
        return cls.START if recovery.cause == _STARTED else cls.ATTEMPT


@dataclass(frozen=True, slots=True)
class RecoveryPrediction:
    """The expected parts of a recovery."""

    detect: Estimate
    redeploy: Estimate
    load_state: Estimate
    reset_sources: Estimate
    reset_sinks: Estimate
    processing: Estimate
    """Until the slowest step gets records; not part of R, but of what has to be caught up."""

    @property
    def downtime(self) -> Estimate:
        """R: the sum of the five parts."""
        five = self.redeploy + self.load_state + self.reset_sources + self.reset_sinks
        return self.detect + five

    @property
    def until_processing(self) -> Estimate:
        """R, and the time until records are processed again."""
        return self.downtime + self.processing

    def time_to_normal(self, load: Estimate, age_s: float) -> Estimate:
        """Predict the time from the failure until the job has caught up, for a load rho."""
        down = self.until_processing
        return Estimate(
            time_to_normal(down.value, load.value, age_s),
            time_to_normal(down.low, load.low, age_s),
            time_to_normal(down.high, load.high, age_s),
            down.observations,
        )


@dataclass(frozen=True, slots=True)
class RecoveryModel:
    """Predicts recoveries of one kind from the size of the state."""

    kind: FailureKind
    detect: Estimate
    redeploy: Estimate
    load_state: Line
    """By the bytes loaded."""
    reset_sources: Estimate
    reset_sinks: Estimate
    processing: Estimate
    observations: int

    def at(self, state_bytes: float) -> RecoveryPrediction:
        """Predict a recovery that loads so many bytes."""
        return RecoveryPrediction(
            self.detect,
            self.redeploy,
            self.load_state.at(state_bytes),
            self.reset_sources,
            self.reset_sinks,
            self.processing,
        )


def fit_recovery(
    recoveries: Sequence[Recovery],
    checkpoints: Sequence[CheckpointStats],
    kind: FailureKind,
) -> RecoveryModel:
    """Fit the model to the recoveries of a job; what was never seen is a documented default.

    State is loaded alike in all kinds of recoveries, so its line is fitted to all of them.
    """
    mine = [r for r in recoveries if FailureKind.of(r) is kind][-_NEWEST:]
    # A start by hand deploys as a new driver does, but nothing had to be detected.
    deployed = mine or (
        [r for r in recoveries if FailureKind.of(r) is FailureKind.START]
        if kind is FailureKind.DRIVER
        else []
    )
    sizes = {c.id: c.full_bytes for c in checkpoints}
    loads = [(_loaded(r, sizes), r.load_state_s) for r in recoveries if r.checkpoint is not None]
    known = [(size, seconds) for size, seconds in loads if size is not None]
    in_driver = kind is FailureKind.ATTEMPT
    redeploy = defaults.REDEPLOY_IN_DRIVER_S if in_driver else defaults.REDEPLOY_S
    return RecoveryModel(
        kind=kind,
        detect=_typical([r.detect_s for r in mine], 0.0 if in_driver else defaults.DETECT_S),
        redeploy=_typical([r.redeploy_s for r in deployed], redeploy),
        load_state=fit_line(
            [float(size) for size, _ in known],
            [seconds for _, seconds in known],
            default_slope=defaults.LOAD_S_PER_BYTE,
            default_intercept=defaults.LOAD_S,
        ),
        reset_sources=_typical([r.reset_sources_s for r in deployed], defaults.RESET_SOURCES_S),
        reset_sinks=_typical([r.reset_sinks_s for r in deployed], defaults.RESET_SINKS_S),
        processing=_typical(
            [r.catch_up_began_s for r in deployed if r.catch_up_began_s is not None],
            defaults.PROCESSING_S,
        ),
        observations=len(mine),
    )


def _loaded(recovery: Recovery, sizes: Mapping[int, int]) -> int | None:
    if recovery.loaded_bytes:
        return recovery.loaded_bytes
    # Recorded by an older version.
    return None if recovery.checkpoint is None else sizes.get(recovery.checkpoint)


def _typical(values: Sequence[float], default: float) -> Estimate:
    return typical(values) if values else assumed(default)


def measured_time_to_normal(recovery: Recovery) -> float | None:
    """Return how long a recorded recovery took until the job had caught up, None if unknown."""
    return None if recovery.caught_up_s is None else downtime(recovery) + recovery.caught_up_s


def downtime(recovery: Recovery) -> float:
    """Return R of a recorded recovery."""
    return math.fsum(
        (
            recovery.detect_s,
            recovery.redeploy_s,
            recovery.load_state_s,
            recovery.reset_sources_s,
            recovery.reset_sinks_s,
        )
    )
