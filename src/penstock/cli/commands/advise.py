"""`penstock advise`: the checkpoint interval of a job, with the numbers it follows from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.cli.advice_text import advice_text
from penstock.cli.options import SelectedJob, directory_options, json_option
from penstock.cli.output import echo, warn_unreadable
from penstock.client.job_advice import Description, WhatIf, advise_described, advise_job
from penstock.common.storage_url import Location
from penstock.common.text.durations import parse_duration
from penstock.common.text.memory_sizes import parse_memory_size
from penstock.models.advice import Goals


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
    what_if = WhatIf(rate, capacity, state_size)
    selected = None if job is None else SelectedJob.find(job, defines, config, directory)
    facts = None if selected is None else advise_job(selected.directory, goals, what_if)
    if facts is None:
        if state_size is None:
            raise click.ClickException(_nothing_known(selected))
        described = Description(state_size, changed_per_second, incremental=not full_checkpoints)
        job_id = None if selected is None else selected.id
        facts = advise_described(job_id, described, goals, what_if)
    shown = facts
    name = None if selected is None else selected.name
    echo(shown, as_json, lambda: advice_text(shown, name))
    if selected is not None:
        warn_unreadable(str(selected.directory.path), shown.unreadable)


def _nothing_known(selected: SelectedJob | None) -> str:
    describe = "describe the job with --state-size, --rate and --capacity"
    if selected is None:
        return f"name a JOB whose history shows its costs, or {describe}"
    return (
        f"the history of job {selected.id} has no completed checkpoint, and so no costs: run it "
        "for some minutes with execution.checkpointing.interval set (1 min is a good first "
        f"value), or {describe}"
    )
