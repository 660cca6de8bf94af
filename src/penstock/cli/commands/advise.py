"""`penstock advise`: the checkpoint interval of a job, with the numbers it follows from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.history import CheckpointStatus, History
from penstock.cli.advice_text import advice_text
from penstock.cli.options import SelectedJob, directory_options, json_option
from penstock.cli.output import echo, warn_unreadable
from penstock.common.storage_url import Location
from penstock.common.text.durations import parse_duration
from penstock.common.text.memory_sizes import parse_memory_size
from penstock.models.advice import Advice, Goals, Verdict, advise
from penstock.models.checkpoint_cost import CheckpointPrediction
from penstock.models.consistency import Consistency
from penstock.models.job_model import JobModel, assumed_job, fit_job
from penstock.models.load import CapacitySource, Load
from penstock.models.recovery_time import RecoveryPrediction
from penstock.models.round_interval import format_interval

_UNKNOWN_INTERVAL_S = 60.0


class JobAdvice(msgspec.Struct, frozen=True):
    """Everything that the command prints; seconds, bytes and records per second."""

    job: str | None
    """The id of the job, None if there is none yet."""
    name: str | None
    verdict: Verdict
    configuration: dict[str, str]
    """The lines to paste; empty if nothing has to be changed."""
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
    guarantee: str
    missing: list[str]
    """What the history does not show, and what was assumed instead."""


def _parsed(parse: Callable[[str], Any], expected: str) -> Callable[..., Any]:
    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except (ValueError, OverflowError):
            message = f"{value!r} is not {expected}"
            raise click.BadParameter(message, ctx, param) from None

    return callback


def _seconds(text: str) -> float:
    seconds = parse_duration(text).total_seconds()
    if seconds <= 0:
        raise ValueError(text)
    return seconds


def _share(text: str) -> float:
    number = text.strip()
    share = float(number[:-1]) / 100 if number.endswith("%") else float(number)
    if not 0 < share < 1:
        raise ValueError(text)
    return share


_duration = _parsed(_seconds, 'a duration above zero, such as "60 s" or "5 min"')
_percentage = _parsed(_share, 'a share such as "5%" or "0.05"')
_memory = _parsed(parse_memory_size, 'a size such as "2 gb"')
_positive = click.FloatRange(min=0, min_open=True)


@click.command("advise")
@click.argument("job", required=False)
@click.option(
    "--recovery-target",
    default="60 s",
    show_default=True,
    callback=_duration,
    help="How long a failure may be felt: until the job has caught up, at worst.",
)
@click.option(
    "--visibility",
    callback=_duration,
    help="How old output of sinks that commit may be before it is visible, at worst.",
)
@click.option(
    "--overhead",
    default="5%",
    show_default=True,
    callback=_percentage,
    help="The share of the capacity that checkpoints may take.",
)
@click.option(
    "--failures-per-day",
    type=click.FloatRange(min=0),
    help="How often the job fails; by default what its history shows, or once.",
)
@click.option("--rate", type=_positive, help="Records per second that arrive.")
@click.option("--capacity", type=_positive, help="Records per second that it could process.")
@click.option("--state-size", callback=_memory, help="Size of the state.")
@click.option(
    "--changed-per-second",
    callback=_memory,
    help="Bytes of state that change per second, for a job without history.",
)
@click.option(
    "--full-checkpoints",
    is_flag=True,
    help="Checkpoints write everything (not incremental), for a job without history.",
)
@directory_options
@json_option
def advise_command(
    job: str | None,
    recovery_target: float,
    visibility: float | None,
    overhead: float,
    failures_per_day: float | None,
    rate: float | None,
    capacity: float | None,
    state_size: int | None,
    changed_per_second: int | None,
    full_checkpoints: bool,
    defines: tuple[str, ...],
    config: Path | None,
    directory: Location | None,
    as_json: bool,
) -> None:
    """Recommend a checkpoint interval for JOB, from its own history.

    JOB is an id, a name, or the path of a job's directory. --rate, --capacity and --state-size
    replace what was measured. Without JOB, --state-size describes a job that does not exist yet.
    """
    goals = Goals(recovery_target, visibility, overhead, failures_per_day)
    selected = None if job is None else SelectedJob.find(job, defines, config, directory)
    history = None if selected is None else History(selected.directory.storage)
    model, guarantee, missing = None, "EXACTLY_ONCE", []
    if selected is not None and history is not None:
        model, guarantee = _fitted(selected, history)
    if model is not None:
        model = model.at_rate(rate, capacity, state_size)
        missing = _missing(model)
    else:
        if state_size is None:
            raise click.ClickException(_nothing_known(selected))
        model = assumed_job(
            state_size,
            rate,
            capacity,
            changed_bytes_per_s=changed_per_second,
            incremental=not full_checkpoints,
        )
        missing = _assumed(model, is_change_given=changed_per_second is not None)
    facts = _job_advice(selected, model, goals, guarantee, missing)
    echo(facts, as_json, lambda: advice_text(facts))
    if selected is not None and history is not None:
        warn_unreadable(str(selected.directory.path), history.unreadable)


def _fitted(selected: SelectedJob, history: History) -> tuple[JobModel | None, str]:
    """Return the models of a job, and its guarantee."""
    checkpoints = history.checkpoints()
    facts = selected.directory.read_facts()
    steps = [] if facts is None else facts.plan
    model = fit_job(
        checkpoints,
        history.recoveries(),
        history.exceptions(),
        parallelism=max((step.parallelism for step in steps), default=None),
    )
    done = [c for c in checkpoints if c.status is CheckpointStatus.COMPLETED]
    is_weak = bool(done) and done[-1].barriers == BarrierHandling.AT_LEAST_ONCE.value
    return model, "AT_LEAST_ONCE" if is_weak else "EXACTLY_ONCE"


def _nothing_known(selected: SelectedJob | None) -> str:
    describe = "describe the job with --state-size, --rate and --capacity"
    if selected is None:
        return f"name a JOB whose history shows its costs, or {describe}"
    return (
        f"the history of job {selected.id} has no completed checkpoint, and so no costs: run it "
        "for some minutes with execution.checkpointing.interval set (1 min is a good first "
        f"value), or {describe}"
    )


def _job_advice(
    selected: SelectedJob | None,
    model: JobModel,
    goals: Goals,
    guarantee: str,
    missing: list[str],
) -> JobAdvice:
    found = advise(model, goals)
    shown = found.current or found.recommended
    at = _UNKNOWN_INTERVAL_S if shown is None else shown.interval_s
    state = model.cost.changed.full_bytes
    return JobAdvice(
        job=None if selected is None else selected.id,
        name=None if selected is None else selected.name,
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
    """Return the settings to change."""
    chosen = found.recommended
    if chosen is None or found.verdict is Verdict.FINE:
        return {}
    lines = {"execution.checkpointing.interval": format_interval(chosen.interval_s)}
    if model.cost.at(chosen.interval_s).duration.high > chosen.interval_s / 2:
        # A checkpoint that takes unusually long must not leave the job no time in between.
        pause = format_interval(round(chosen.interval_s / 2, 3))
        lines["execution.checkpointing.min-pause"] = pause
    return lines


def _missing(model: JobModel) -> list[str]:
    """Return what the history of a job does not show."""
    found = []
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


def _assumed(model: JobModel, *, is_change_given: bool) -> list[str]:
    found = ["There is no history: all costs are documented defaults, of another machine."]
    if not is_change_given and not model.cost.changed.is_full:
        found.append("How much state changes is assumed from --rate: --changed-per-second says.")
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
