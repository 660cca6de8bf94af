"""Advice on the checkpoint interval of a job, with all numbers it follows from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import msgspec

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.history import CheckpointStatus, History
from penstock.checkpoint.settings import Guarantee
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.job_facts import JobFacts
from penstock.common.config.checkpoint_options import CHECKPOINT_INTERVAL
from penstock.common.config.known_options import MICRO_BATCH_TARGET_DURATION
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
from penstock.errors import ConfigurationError
from penstock.models.advice import Advice, Goals, Verdict, advise
from penstock.models.checkpoint_cost import CheckpointPrediction
from penstock.models.consistency import Consistency
from penstock.models.job_model import JobModel, assumed_job, fit_job
from penstock.models.load import CapacitySource, Load
from penstock.models.recovery_time import RecoveryPrediction
from penstock.models.round_interval import format_interval

_UNKNOWN_INTERVAL_S = 60.0
_STRETCHED = 1.25

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What replaces the measurements of a job; None to keep what was measured."""

    rate: float | None = None
    """Records per second that arrive."""
    capacity: float | None = None
    """Records per second that the job could process."""
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A job without history."""

    state_bytes: int
    changed_bytes_per_s: float | None = None
    """Of the state; None to assume it from the rate."""
    incremental: bool = True


class JobAdvice(msgspec.Struct, frozen=True):
    """The advice for one job; seconds, bytes and records per second."""

    job: str | None
    """The id of the job, None if there is none yet."""
    verdict: Verdict
    configuration: dict[str, str]
    """The settings to change; empty if nothing has to be changed."""
    goals: Goals
    advice: Advice
    checkpoint: CheckpointPrediction
    """At the present interval, or else at the recommended one."""
    checkpoint_interval_s: float
    state_bytes: float
    recovery: RecoveryPrediction
    load: Load
    load_share: float | None
    consistency: Consistency | None
    guarantee: Guarantee
    missing: list[str]
    """What the history does not show, and what was assumed instead."""
    unreadable: list[str] = []
    """Damaged records, which were left out."""


def advise_job(job: JobDir, goals: Goals, what_if: WhatIf) -> JobAdvice | None:
    """Return the advice that the history of a job allows; None without a completed checkpoint."""
    history = History(job.storage)
    checkpoints = history.checkpoints()
    facts = job.read_facts() or JobFacts("", 0.0)
    settings = Configuration.from_dict(facts.settings)
    interval = _setting(settings, CHECKPOINT_INTERVAL)
    target = _setting(settings, MICRO_BATCH_TARGET_DURATION) or timedelta(seconds=1)
    model = fit_job(
        checkpoints,
        history.recoveries(),
        history.exceptions(),
        parallelism=max((step.parallelism for step in facts.plan), default=None),
        interval_s=None if interval is None else interval.total_seconds(),
        target_duration_s=target.total_seconds(),
    )
    if model is None:
        return None
    model = model.at_rate(what_if.rate, what_if.capacity, what_if.state_bytes)
    done = [c for c in checkpoints if c.status is CheckpointStatus.COMPLETED]
    is_weak = done[-1].barriers == BarrierHandling.AT_LEAST_ONCE.value
    guarantee = Guarantee.AT_LEAST_ONCE if is_weak else Guarantee.EXACTLY_ONCE
    advice = _advice(job.key, model, goals, guarantee, _missing(model))
    return msgspec.structs.replace(advice, unreadable=sorted(history.unreadable))


def _setting(settings: Configuration, option: ConfigOption[T]) -> T | None:
    """Return a setting of the job, None if it is damaged."""
    try:
        return read(settings, option)
    except ConfigurationError:
        return None


def advise_described(
    job: str | None, description: Description, goals: Goals, what_if: WhatIf
) -> JobAdvice:
    """Return the advice for a job without history, from documented costs."""
    model = assumed_job(
        description.state_bytes,
        what_if.rate,
        what_if.capacity,
        changed_bytes_per_s=description.changed_bytes_per_s,
        incremental=description.incremental,
    )
    missing = ["There is no history: all costs are documented defaults, of another machine."]
    if description.changed_bytes_per_s is None and description.incremental:
        missing.append("How much state changes is assumed from the rate: --changed-per-second.")
    missing += _missing_load(model) + _missing_failures(model)
    return _advice(job, model, goals, Guarantee.EXACTLY_ONCE, missing)


def _advice(
    job: str | None, model: JobModel, goals: Goals, guarantee: Guarantee, missing: list[str]
) -> JobAdvice:
    found = advise(model, goals)
    shown = found.current or found.recommended
    at = _UNKNOWN_INTERVAL_S if shown is None else shown.interval_s
    state = model.cost.changed.full_bytes
    return JobAdvice(
        job=job,
        verdict=found.verdict,
        configuration=_configuration(found, model),
        goals=replace(goals, failures_per_day=found.failures_per_day),
        advice=found,
        checkpoint=model.cost.at(at),
        checkpoint_interval_s=at,
        state_bytes=state,
        recovery=model.recovery.at(state),
        load=model.load,
        load_share=model.load_at(at),
        consistency=model.consistency,
        guarantee=guarantee,
        missing=missing,
    )


def _configuration(found: Advice, model: JobModel) -> dict[str, str]:
    chosen = found.recommended
    if chosen is None or found.verdict is Verdict.FINE:
        return {}
    settings = {"execution.checkpointing.interval": format_interval(chosen.interval_s)}
    if model.cost.at(chosen.interval_s).duration.high > chosen.interval_s / 2:
        # A checkpoint that takes unusually long must not leave the job no time in between.
        pause = format_interval(round(chosen.interval_s / 2, 3))
        settings["execution.checkpointing.min-pause"] = pause
    return settings


# -- what is not known --------------------------------------------------------------------------


def _missing(model: JobModel) -> list[str]:
    found = []
    wanted, observed = model.interval_s, model.observed_interval_s
    if wanted is not None and observed is not None and observed > wanted * _STRETCHED:
        found.append(
            f"Checkpoints are {observed:.3g} s apart although the interval is {wanted:.3g} s: they "
            "take too long, or wait for the minimum pause."
        )
    if model.recovery.observations == 0:
        found.append(
            "No recovery after the death of a driver is recorded: parts of it are assumed."
        )
    if not model.cost.changed.has_measured_shape and not model.cost.changed.is_full:
        found.append(
            "All checkpoints had about the same interval: how their size depends on it is assumed."
        )
    if not model.cost.lost.observations:
        found.append("The capacity that checkpoints take was not recorded: it is assumed.")
    return found + _missing_load(model) + _missing_failures(model)


def _missing_load(model: JobModel) -> list[str]:
    found = []
    if model.load.rate is None:
        found.append("The input rate is unknown: --rate states it.")
    if model.load.capacity is None:
        found.append("How fast the job could be is unknown: --capacity states it.")
    if model.load.share is None:
        found.append("So the recovery target is not taken into account.")
    if model.load.source is CapacitySource.MICRO_BATCHES:
        found.append(
            "How fast the job could be is estimated from micro-batches: the next recovery "
            "measures it, or --capacity states it."
        )
    return found


def _missing_failures(model: JobModel) -> list[str]:
    if model.failures_per_day is not None:
        return []
    return ["Too few failures are recorded to say how often it fails: see --failures-per-day."]
