"""What a checkpoint costs: C = snapshot + barrier + persist + coordination, by the history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, LoadStats
from penstock.checkpoint.storage.metadata import SubtaskStats
from penstock.models import defaults
from penstock.models.changed_bytes import ChangedBytes, fit_changed_bytes
from penstock.models.fitting.estimate import Estimate, around, sigma_of
from penstock.models.fitting.robust_fit import Line, constant, fit_line
from penstock.models.micro_batches import MicroBatches, fit_micro_batches

_PERIODIC = "periodic"
_NEWEST = 10
"""Checkpoints that show how things are now."""
_SAVEPOINTS = ("savepoint", "stop")


@dataclass(frozen=True, slots=True)
class CheckpointObservation:
    """One completed checkpoint of the history, its duration divided into four parts.

    The parts are those of the subtask that acknowledged last, and add up to the duration.
    """

    checkpoint: int
    interval_s: float | None
    """Since the checkpoint before was triggered; None for the first one of an attempt."""
    state_bytes: int
    new_bytes: int
    snapshot_s: float
    """The synchronous phase: the stage waits."""
    barrier_s: float
    """From the trigger until the barrier has passed: running micro-batches, and alignment."""
    persist_s: float
    """The asynchronous phase, with the time in the queue of the stage's executor."""
    coordination_s: float
    """From the last acknowledgement to the completion: metadata and journal."""
    duration_s: float
    is_periodic: bool = True
    rate: float | None = None
    """Records per second since the checkpoint before."""
    batch_s: float | None = None
    """The mean duration of the micro-batches since then."""


@dataclass(frozen=True, slots=True)
class CheckpointPrediction:
    """The expected cost of a checkpoint."""

    new_bytes: float
    snapshot: Estimate
    barrier: Estimate
    persist: Estimate
    coordination: Estimate
    duration: Estimate
    """From trigger to completion, L: the sum of the four."""
    lost: Estimate
    """Seconds of the job's capacity that it takes, C."""


@dataclass(frozen=True, slots=True)
class CheckpointCostModel:
    """Predicts the cost of a checkpoint from the size of the state and the interval."""

    snapshot: Line
    """By the size of the state."""
    barrier: Line
    """By the duration of micro-batches."""
    persist: Line
    """By the bytes written."""
    coordination: Line
    changed: ChangedBytes
    lost: Line
    """By the bytes written."""
    batches: MicroBatches | None
    """None if the history does not show them."""
    batch_s: float
    """The duration of micro-batches at the present rate."""
    sigma: float
    """Of the whole duration around its prediction; infinite if unknown."""
    observations: int
    """Of how many checkpoints it was fitted to; 0 for documented defaults."""

    def at(self, interval_s: float) -> CheckpointPrediction:
        """Predict a checkpoint that is taken so long after the one before."""
        new = self.changed.at(interval_s)
        parts = (
            self.snapshot.at(self.changed.full_bytes),
            self.barrier.at(self.batch_s),
            self.persist.at(new),
            self.coordination.at(0.0),
        )
        # Parts of one checkpoint depend on each other, so the range is that of the whole.
        whole = around(sum(p.value for p in parts), self.sigma, self.observations)
        return CheckpointPrediction(new, *parts, whole, self.lost.at(new))

    def for_state(
        self, full_bytes: float | None = None, *, change: float = 1.0, rate: float | None = None
    ) -> CheckpointCostModel:
        """Return the model for a state of another size, another rate of changes or of records."""
        batch = self.batch_s
        if rate is not None and self.batches is not None:
            batch = self.batches.duration(rate)
        changed = self.changed.scaled(full_bytes=full_bytes, change=change)
        return replace(self, changed=changed, batch_s=batch)


def observe_checkpoints(records: Sequence[CheckpointStats]) -> list[CheckpointObservation]:
    """Return what completed checkpoints show, oldest first; savepoints write something else."""
    found = []
    before: CheckpointStats | None = None
    for record in sorted(records, key=lambda r: r.id):
        if record.kind in _SAVEPOINTS or record.status is not CheckpointStatus.COMPLETED:
            continue
        interval = None
        if before is not None and before.attempt == record.attempt:
            interval = record.triggered - before.triggered
        before = record
        stats = [s for operator in record.operators for s in operator.stats]
        if stats:
            found.append(_observation(record, stats, interval))
    return found


def _observation(
    record: CheckpointStats, stats: Sequence[SubtaskStats], interval_s: float | None
) -> CheckpointObservation:
    last = max(stats, key=lambda s: s.acknowledged)
    whole = max(0.0, record.duration_s)
    # Clocks of the parts differ: each may take at most what the ones before left.
    acknowledged = min(max(0.0, last.acknowledged - record.triggered), whole)
    barrier = min(last.start_delay_s + last.alignment_s, acknowledged)
    snapshot = min(last.sync_s, acknowledged - barrier)
    return CheckpointObservation(
        checkpoint=record.id,
        interval_s=interval_s,
        state_bytes=record.full_bytes,
        new_bytes=record.new_bytes,
        snapshot_s=snapshot,
        barrier_s=barrier,
        persist_s=acknowledged - barrier - snapshot,
        coordination_s=whole - acknowledged,
        duration_s=whole,
        is_periodic=record.kind == _PERIODIC,
        rate=rate_of(record),
        batch_s=_batch_s(record),
    )


def load_spans(record: CheckpointStats) -> list[LoadStats]:
    """Return what is recorded of the load before and during a checkpoint."""
    return [s for s in (record.load_before, record.load_during) if s is not None]


def rate_of(record: CheckpointStats) -> float | None:
    """Return the records per second since the checkpoint before, None if not recorded."""
    spans = load_spans(record)
    seconds = sum(s.seconds for s in spans)
    if record.load_before is None or seconds <= 0:
        return None
    return sum(s.records for s in spans) / seconds


def _batch_s(record: CheckpointStats) -> float | None:
    spans = load_spans(record)
    batches = sum(s.batches for s in spans)
    return sum(s.busy_s for s in spans) / batches if batches else None


def fit_checkpoint_cost(
    records: Sequence[CheckpointStats], target_duration_s: float = defaults.TARGET_DURATION_S
) -> CheckpointCostModel | None:
    """Fit the model to the history of a job; None if no checkpoint was completed."""
    seen = observe_checkpoints(records)
    if not seen:
        return None
    timed = [o for o in seen if o.interval_s is not None]
    rates = [o.rate for o in seen if o.rate][-_NEWEST:]
    now = float(np.median(rates)) if rates else None
    changed = fit_changed_bytes(
        [(o.interval_s or 0.0) * (o.rate / now if o.rate and now else 1.0) for o in timed],
        [o.new_bytes for o in timed],
        [o.state_bytes for o in timed],
    )
    if not timed:
        # Only first checkpoints, which write everything: nothing shows what later ones write.
        changed = ChangedBytes(float(seen[-1].state_bytes), math.inf, 1.0, 0)
    written = [float(o.new_bytes) for o in seen]
    persist = fit_line(
        written, [o.persist_s for o in seen], default_slope=defaults.PERSIST_S_PER_BYTE
    )
    sizes = [float(o.state_bytes) for o in seen]
    snapshot = fit_line(sizes, [o.snapshot_s for o in seen], default_slope=0.0)
    durations = [o.batch_s for o in seen if o.batch_s is not None]
    batch = float(np.median(durations[-_NEWEST:])) if durations else 0.0
    of_batches = [batch if o.batch_s is None else o.batch_s for o in seen]
    barrier = fit_line(of_batches, [o.barrier_s for o in seen], default_slope=0.0)
    coordination = constant([o.coordination_s for o in seen])
    residuals = [
        o.duration_s
        - snapshot.value(o.state_bytes)
        - barrier.value(of_batch)
        - persist.value(o.new_bytes)
        - coordination.intercept
        for o, of_batch in zip(seen, of_batches, strict=True)
    ]
    return CheckpointCostModel(
        snapshot=snapshot,
        barrier=barrier,
        persist=persist,
        coordination=coordination,
        changed=changed,
        lost=_fit_lost(records, persist),
        batches=fit_micro_batches([s for r in records for s in load_spans(r)], target_duration_s),
        batch_s=batch,
        sigma=sigma_of(residuals, parameters=2),
        observations=len(seen),
    )


def assumed_checkpoint_cost(
    state_bytes: float, changed_bytes_per_s: float, *, incremental: bool
) -> CheckpointCostModel:
    """Return the model of a job without history, from documented defaults."""
    rate = changed_bytes_per_s if incremental else math.inf
    persist = Line(defaults.PERSIST_S, defaults.PERSIST_S_PER_BYTE, math.inf, 0)
    return CheckpointCostModel(
        snapshot=Line(defaults.SNAPSHOT_S, 0.0, math.inf, 0),
        barrier=Line(defaults.BARRIER_S, 0.0, math.inf, 0),
        persist=persist,
        coordination=Line(defaults.COORDINATION_S, 0.0, math.inf, 0),
        changed=ChangedBytes(state_bytes, rate, 1.0, 0),
        lost=_assumed_lost(persist),
        batches=None,
        batch_s=0.0,
        sigma=math.inf,
        observations=0,
    )


def _assumed_lost(persist: Line) -> Line:
    share = defaults.LOST_SHARE_OF_PERSIST
    return Line(persist.intercept * share, persist.slope * share, math.inf, 0)


def _fit_lost(records: Sequence[CheckpointStats], persist: Line) -> Line:
    """Fit the capacity that a checkpoint takes: the longer micro-batches while it runs."""
    pairs = [
        (float(r.new_bytes), r.load_before, r.load_during)
        for r in records
        if r.status is CheckpointStatus.COMPLETED and r.kind not in _SAVEPOINTS
    ]
    quiet = [before for _, before, _ in pairs if before is not None]
    usual = fit_micro_batches(quiet)
    lost, written = [], []
    for new, _, during in pairs:
        if during is None or during.batches == 0 or usual is None:
            continue
        expected = usual.fixed_s * during.batches + usual.per_record_s * during.records
        # What it took longer, and never more than all of its time.
        lost.append(min(max(0.0, during.busy_s - expected), during.seconds))
        written.append(new)
    if not lost:
        return _assumed_lost(persist)
    slope = persist.slope * defaults.LOST_SHARE_OF_PERSIST
    return fit_line(written, lost, default_slope=slope)
