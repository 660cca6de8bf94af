"""Chooses a checkpoint interval within its bounds, or says which input to change."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from penstock.models import interval as formulas
from penstock.models.job_model import JobModel
from penstock.models.levers import Conflict, Lever, levers
from penstock.models.round_interval import round_interval

SHORTEST_S = 0.01
"""As `execution.checkpointing.interval` allows."""
LONGEST_S = 86_400.0
_DAY_S = 86_400.0
_GRID = 600
_STEPS = 50
_FIXED_POINT_STEPS = 20


@dataclass(frozen=True, slots=True)
class Goals:
    """What the user wants; None where it does not matter."""

    recovery_target_s: float | None = 60.0
    """S: until the job has caught up after a failure, in the worst case."""
    visibility_s: float | None = None
    """V: until the output of a record is committed, in the worst case."""
    overhead: float = 0.05
    """ε: the share of the capacity that checkpoints may take."""
    failures_per_day: float | None = None
    """None to take what the history shows, or one a day."""


class BoundKind(Enum):
    """Why an interval must not be longer or shorter."""

    RECOVERY = "recovery target"
    VISIBILITY = "visibility"
    OVERHEAD = "overhead"
    KEEP_UP = "ability to keep up"
    DURATION = "duration of a checkpoint"


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound of the interval."""

    kind: BoundKind
    is_upper: bool
    seconds: float
    """Infinite, or zero as an upper bound, if no interval is within it."""

    @property
    def can_be_met(self) -> bool:
        """Whether any interval is within this bound alone."""
        return self.seconds >= SHORTEST_S if self.is_upper else self.seconds <= LONGEST_S


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the models predict for one interval."""

    interval_s: float
    duration_s: float
    """L."""
    lost_s: float
    """C."""
    new_bytes: float
    overhead: float
    """C/T."""
    load: float | None
    """rho."""
    downtime_s: float
    """R, with the time until records are processed."""
    normal_mean_s: float | None
    normal_worst_s: float | None
    visible_mean_s: float
    visible_worst_s: float


class Verdict(Enum):
    """The result of comparing the interval of a job with its bounds."""

    FINE = "fine"
    CHANGE = "change"
    NEW = "new"
    """No interval is known yet: this one is recommended."""
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommended interval, why, and what to change if there is none."""

    verdict: Verdict
    bounds: tuple[Bound, ...]
    lower: Bound
    upper: Bound
    """The bounds that decide; infinite if nothing limits the interval."""
    cheapest_s: float
    """The interval that loses least to checkpoints and repeated work (Daly), bounds aside."""
    failures_per_day: float
    recommended: Outcome | None
    """None if no interval is within all bounds."""
    current: Outcome | None
    levers: tuple[Lever, ...]


def advise(model: JobModel, goals: Goals) -> Advice:
    """Return the interval to use."""
    bounds = tuple(_bounds(model, goals))
    lower = max((b for b in bounds if not b.is_upper), key=lambda b: b.seconds)
    uppers = [b for b in bounds if b.is_upper]
    unlimited = Bound(BoundKind.DURATION, True, math.inf)
    upper = min(uppers, key=lambda b: b.seconds, default=unlimited)
    rate = goals.failures_per_day
    if rate is None:
        rate = 1.0 if model.failures_per_day is None else model.failures_per_day.value
    cheapest = _cheapest(model, rate)
    current = None if model.interval_s is None else outcome(model, model.interval_s)
    possible = lower.seconds <= upper.seconds and lower.can_be_met and upper.can_be_met
    recommended = None
    found: tuple[Lever, ...] = ()
    if possible:
        shortest, longest = max(lower.seconds, SHORTEST_S), min(upper.seconds, LONGEST_S)
        chosen = round_interval(min(max(cheapest, shortest), longest), shortest, longest)
        recommended = outcome(model, chosen)
    else:
        found = levers(_conflict(model, goals, lower, upper))
    verdict = Verdict.IMPOSSIBLE
    if recommended is not None and model.interval_s is None:
        verdict = Verdict.NEW
    elif recommended is not None and model.interval_s is not None:
        is_within = lower.seconds <= model.interval_s <= upper.seconds
        verdict = Verdict.FINE if is_within else Verdict.CHANGE
    return Advice(verdict, bounds, lower, upper, cheapest, rate, recommended, current, found)


def outcome(model: JobModel, interval_s: float) -> Outcome:
    """Predict what an interval leads to."""
    cost, load = model.cost.at(interval_s), model.load_at(interval_s)
    duration, lost = cost.duration.value, cost.lost.value
    down = _downtime(model)
    mean, worst = (formulas.age(interval_s, duration, worst=w) for w in (False, True))
    return Outcome(
        interval_s=interval_s,
        duration_s=duration,
        lost_s=lost,
        new_bytes=cost.new_bytes,
        overhead=lost / interval_s,
        load=load,
        downtime_s=down,
        normal_mean_s=None if load is None else formulas.time_to_normal(down, load, mean),
        normal_worst_s=None if load is None else formulas.time_to_normal(down, load, worst),
        visible_mean_s=mean,
        visible_worst_s=worst,
    )


def _downtime(model: JobModel) -> float:
    return model.recovery.at(model.cost.changed.full_bytes).until_processing.value


def _bounds(model: JobModel, goals: Goals) -> list[Bound]:
    """Return all bounds; cost and duration depend on the interval, so they are searched for."""

    def costs_little(t: float) -> bool:
        return model.cost.at(t).lost.value <= goals.overhead * t

    def keeps_up(t: float) -> bool:
        load = model.load_at(t)
        return load is None or load < 1

    def is_complete_before_next(t: float) -> bool:
        return model.cost.at(t).duration.value <= t

    found = [
        Bound(BoundKind.OVERHEAD, False, _first(costs_little)),
        Bound(BoundKind.KEEP_UP, False, _first(keeps_up)),
        Bound(BoundKind.DURATION, False, _first(is_complete_before_next)),
    ]
    visibility, target = goals.visibility_s, goals.recovery_target_s
    if visibility is not None:
        found.append(
            Bound(
                BoundKind.VISIBILITY,
                True,
                _last(lambda t: t + model.cost.at(t).duration.value <= visibility),
            )
        )
    if target is not None and model.load.share is not None:

        def recovers(t: float) -> bool:
            worst = outcome(model, t).normal_worst_s
            return worst is not None and worst <= target

        longest = _last(recovers)
        found.append(Bound(BoundKind.RECOVERY, True, longest))
        if longest > 0:
            # Checkpoints that are too frequent leave no capacity to catch up.
            found.append(Bound(BoundKind.RECOVERY, False, _first(recovers)))
    return found


def _grid() -> list[float]:
    return [float(t) for t in np.geomspace(SHORTEST_S, LONGEST_S, _GRID)]


def _first(holds: Callable[[float], bool]) -> float:
    """Return the shortest interval for which a condition holds, infinity if there is none."""
    grid = _grid()
    index = next((i for i, t in enumerate(grid) if holds(t)), None)
    if index is None:
        return math.inf
    return 0.0 if index == 0 else _edge(grid[index], grid[index - 1], holds)


def _last(holds: Callable[[float], bool]) -> float:
    """Return the longest interval for which a condition holds, 0 if there is none."""
    grid = _grid()
    index = next((i for i in reversed(range(len(grid))) if holds(grid[i])), None)
    if index is None:
        return 0.0
    return math.inf if index == len(grid) - 1 else _edge(grid[index], grid[index + 1], holds)


def _edge(inside: float, outside: float, holds: Callable[[float], bool]) -> float:
    """Return the last point inside, between one where a condition holds and one where not."""
    for _ in range(_STEPS):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _cheapest(model: JobModel, failures_per_day: float) -> float:
    """Return Daly's interval for the cost that a checkpoint has at that interval."""
    if failures_per_day <= 0:
        return LONGEST_S
    between = _DAY_S / failures_per_day
    chosen = model.interval_s or 60.0
    for _ in range(_FIXED_POINT_STEPS):
        chosen = max(SHORTEST_S, formulas.daly(model.cost.at(chosen).lost.value, between))
    return min(chosen, LONGEST_S)


def _conflict(model: JobModel, goals: Goals, lower: Bound, upper: Bound) -> Conflict:
    shortest = min(max(lower.seconds, SHORTEST_S), LONGEST_S)
    at = outcome(model, shortest)
    longest = None
    if math.isfinite(upper.seconds):
        longest = upper.seconds
    return Conflict(
        shortest_s=shortest,
        longest_s=longest,
        is_about_recovery=upper.kind is BoundKind.RECOVERY and longest is not None,
        is_about_visibility=upper.kind is BoundKind.VISIBILITY and longest is not None,
        is_about_load=not lower.can_be_met or lower.kind is BoundKind.KEEP_UP,
        cost_s=at.lost_s,
        duration_s=at.duration_s,
        load=at.load,
        downtime_s=at.downtime_s,
        recovery_target_s=goals.recovery_target_s,
        overhead=goals.overhead,
        parallelism=model.parallelism,
        writes_everything=model.cost.changed.is_full,
    )
