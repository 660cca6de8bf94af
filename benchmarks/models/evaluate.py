"""Compares what the models predict for a phase with what was measured in it.

The models are fitted to the history before the phase, and get its rate, interval and number of
keys, which were not in that history. Nothing of the phase itself is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from benchmarks.models.phases import Kill, Phase, Workload
from benchmarks.report import DASH, Sheet
from penstock.checkpoint.history import CheckpointStats, Recovery
from penstock.models.checkpoint_cost import observe_checkpoints
from penstock.models.interval import age
from penstock.models.job_model import JobModel, fit_job
from penstock.models.recovery_time import downtime, measured_time_to_normal

CHECKPOINT, BYTES = "checkpoint duration", "checkpoint bytes"
RECOVERY, NORMAL = "recovery", "time to normal"
QUANTITIES = (CHECKPOINT, RECOVERY, NORMAL, BYTES)
GOAL = 0.25


class Run(msgspec.Struct, frozen=True):
    """The results of `run_phases`."""

    workload: Workload
    phases: list[Phase]
    drivers: list[Kill]
    checkpoints: list[CheckpointStats]
    recoveries: list[Recovery]


@dataclass(frozen=True)
class Pair:
    """One predicted and measured quantity of a phase."""

    quantity: str
    phase: int
    setting: str
    predicted: float
    low: float
    high: float
    measured: float
    trained_on: int
    """Checkpoints or recoveries."""

    @property
    def error(self) -> float:
        return abs(self.predicted - self.measured) / self.measured

    @property
    def is_within_range(self) -> bool:
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Comparison:
    """All pairs of a run."""

    pairs: Sequence[Pair]
    model: JobModel | None
    """Fitted to the whole run."""

    def of(self, quantity: str) -> list[Pair]:
        return [p for p in self.pairs if p.quantity == quantity]

    def median_error(self, quantity: str) -> float | None:
        errors = [p.error for p in self.of(quantity)]
        return median(errors) if errors else None


def read_run(found: dict[str, Any]) -> Run:
    return msgspec.convert(found, Run)


def compare(run: Run) -> Comparison:
    """Predict every phase but the first from what was recorded before it."""
    pairs: list[Pair] = []
    for number in range(1, len(run.phases)):
        drivers = [d for d in run.drivers if d.phase == number]
        began = drivers[0].started
        before = [c for c in run.checkpoints if c.triggered < began]
        recovered = [r for r in run.recoveries if r.time < began]
        model = fit_job(before, recovered, [])
        if model is None:
            continue
        pairs += _phase(run, number, drivers, model)
    return Comparison(pairs, fit_job(run.checkpoints, run.recoveries, []))


def _phase(run: Run, number: int, drivers: Sequence[Kill], model: JobModel) -> Iterator[Pair]:
    phase, earlier = run.phases[number], run.phases[number - 1]
    # What the user knows: how many more keys there will be.
    state = model.cost.changed.full_bytes * phase.keys / earlier.keys
    model = model.at_rate(rate=phase.rate, state_bytes=state)
    cost = model.cost.at(phase.interval_s)
    setting = f"T {phase.interval_s:g} s, {phase.rate:,.0f}/s, {state / 1e6:,.0f} MB"
    trained = model.cost.observations
    # The second driver, once it has caught up: the first one also sees the settings change.
    began = max(
        (r.time + (r.caught_up_s or 0.0) for r in run.recoveries if r.time < drivers[-1].killed),
        default=drivers[-1].started,
    )
    settled = [c for c in run.checkpoints if began < c.triggered < drivers[-1].killed]
    for seen in observe_checkpoints(settled)[1:]:
        duration = cost.duration
        yield Pair(
            CHECKPOINT,
            number,
            setting,
            duration.value,
            duration.low,
            duration.high,
            seen.duration_s,
            trained,
        )
        yield Pair(
            BYTES, number, setting, cost.new_bytes, 0.0, math.inf, float(seen.new_bytes), trained
        )
    for recovery in run.recoveries:
        if not drivers[-1].started < recovery.time < drivers[-1].killed:
            continue
        yield from _recovery(number, setting, phase, model, recovery)


def _recovery(
    number: int, setting: str, phase: Phase, model: JobModel, recovery: Recovery
) -> Iterator[Pair]:
    expected = model.recovery.at(model.cost.changed.full_bytes)
    whole, trained = expected.downtime, model.recovery.observations
    yield Pair(
        RECOVERY, number, setting, whole.value, whole.low, whole.high, downtime(recovery), trained
    )
    load, measured = model.load_range_at(phase.interval_s), measured_time_to_normal(recovery)
    if load is None or measured is None:
        return
    duration = model.cost.at(phase.interval_s).duration.value
    normal = expected.time_to_normal(load, age(phase.interval_s, duration, worst=True))
    if math.isfinite(normal.value):
        yield Pair(
            NORMAL, number, setting, normal.value, normal.low, normal.high, measured, trained
        )


def sheets(comparison: Comparison) -> Iterator[Sheet]:
    """The medians, then every phase, the worst first."""
    yield Sheet(
        "Median errors", ("quantity", "error", "within range", "pairs"), _medians(comparison)
    )
    for quantity in QUANTITIES:
        pairs = _by_phase(comparison.of(quantity))
        pairs.sort(key=lambda p: -p.error)
        yield Sheet(
            f"{quantity[0].upper()}{quantity[1:]}, worst first",
            ("phase", "predicted", "range", "measured", "error", "trained on"),
            [_row(p) for p in pairs],
        )


def _medians(comparison: Comparison) -> list[list[str]]:
    rows = []
    for quantity in QUANTITIES:
        pairs, error = comparison.of(quantity), comparison.median_error(quantity)
        if error is None:
            continue
        inside = sum(p.is_within_range for p in pairs)
        within = DASH if quantity == BYTES else f"{inside} of {len(pairs)}"
        rows.append([quantity, f"{error:.0%}", within, str(len(pairs))])
    return rows


def _by_phase(pairs: Sequence[Pair]) -> list[Pair]:
    """One pair per phase, with the median of what was measured."""
    found = []
    for phase in dict.fromkeys(p.phase for p in pairs):
        mine = [p for p in pairs if p.phase == phase]
        one = mine[0]
        found.append(
            Pair(
                one.quantity,
                phase,
                one.setting,
                one.predicted,
                one.low,
                one.high,
                median(p.measured for p in mine),
                one.trained_on,
            )
        )
    return found


def _row(pair: Pair) -> list[str]:
    if pair.quantity == BYTES:
        shown = [f"{value / 1e6:.1f} MB" for value in (pair.predicted, pair.measured)]
        span = DASH
    else:
        shown = [f"{value:.2f} s" for value in (pair.predicted, pair.measured)]
        span = f"{pair.low:.2f} .. {pair.high:.2f}"
    name = f"{pair.phase}: {pair.setting}"
    return [name, shown[0], span, shown[1], f"{pair.error:.0%}", str(pair.trained_on)]
