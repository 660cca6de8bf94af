"""`penstock metrics`: what the functions of a running job have measured."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.requests import Conversation, asking_options
from penstock.cli.settings import echo_json, job_at
from penstock.cli.tables import table
from penstock.common.metric_figures import MetricInfo
from penstock.recovery.control import Metrics

__all__ = ["metrics"]

_HEADS = ("STEP", "METRIC", "KIND", "COUNT", "VALUE")


@click.command()
@click.argument("job")
@asking_options
def metrics(
    job: str,
    timeout: float | None,
    as_json: bool,
    directory: Path | None,
    defines: tuple[str, ...],
    config: Path | None,
) -> None:
    """Show what the functions of JOB have counted and measured since its driver started.

    JOB is an id, a name, or the path of a job's directory. It must be running: its driver is asked.
    """
    place, given = job_at(job, defines, config, directory)
    answer = Conversation(place, given, timeout).ask(Metrics())
    if not answer.ok or answer.metrics is None:
        raise click.ClickException(answer.message)
    if as_json:
        echo_json(answer.metrics)
    elif answer.metrics:
        click.echo(table(_HEADS, [_row(metric) for metric in answer.metrics], numbers=("COUNT",)))
    else:
        click.echo("the job's functions have measured nothing")


def _row(metric: MetricInfo) -> tuple[str, ...]:
    count = "-" if metric.count is None else f"{metric.count:,}"
    return metric.step, metric.name, metric.kind, count, _value(metric)


def _value(metric: MetricInfo) -> str:
    match metric.kind:
        case "meter":
            return f"{metric.rate:.3g} per second"
        case "distribution":
            return f"{metric.least:g} to {metric.most:g}, mean {metric.mean:.6g}"
        case "gauge":
            return ", ".join(f"{value:g}" for value in metric.subtasks.values())
    return "-"
