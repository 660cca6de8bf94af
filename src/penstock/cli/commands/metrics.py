"""`penstock metrics`: the metrics of a running job's functions."""

from __future__ import annotations

import click

from penstock.cli.options import SelectedJob, job_argument, json_option, timeout_option
from penstock.cli.output import echo, table
from penstock.cli.waiting import driver_of
from penstock.common.metric_values import MetricInfo
from penstock.recovery.control import Metrics

_NONE = "The functions of the job have no metrics."


@click.command()
@job_argument
@timeout_option
@json_option
def metrics(job: SelectedJob, timeout: float | None, as_json: bool) -> None:
    """Show the metrics of JOB, which must be running, since its driver started."""
    with driver_of(job, timeout) as driver:
        answer = driver.request(Metrics())
    found = answer.metrics
    if not answer.ok or found is None:
        raise click.ClickException(answer.message)
    rows = [_row(metric) for metric in found]
    echo(found, as_json, lambda: table(rows, ("COUNT",)) if rows else _NONE)


def _row(metric: MetricInfo) -> dict[str, str]:
    return {
        "STEP": metric.step,
        "METRIC": metric.name,
        "KIND": metric.kind,
        "COUNT": "-" if metric.count is None else f"{metric.count:,}",
        "VALUE": _value(metric),
    }


def _value(metric: MetricInfo) -> str:
    match metric.kind:
        case "meter":
            return f"{metric.rate:.3g} per second"
        case "distribution":
            return f"{metric.least:g} to {metric.most:g}, mean {metric.mean:.6g}"
        case "gauge":
            return ", ".join(f"{value:g}" for value in metric.subtasks.values())
    return "-"
