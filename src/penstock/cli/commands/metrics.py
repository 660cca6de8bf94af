"""`penstock metrics`: the metrics of a running job and of its functions."""

from __future__ import annotations

import click

from penstock.cli.options import SelectedJob, job_argument, json_option, timeout_option
from penstock.cli.output import echo, table
from penstock.cli.waiting import driver_of
from penstock.common.builtin_metrics import builtin_metrics
from penstock.common.metric_values import MetricInfo
from penstock.recovery.control import Metrics

_NONE = "The functions of the job have no metrics."
_USER, _BUILTIN = "user", "builtin"


@click.command()
@job_argument
@click.option("--user", "only", flag_value=_USER, help="Only those of functions.")
@click.option("--builtin", "only", flag_value=_BUILTIN, help="Only the built-in ones.")
@timeout_option
@json_option
def metrics(job: SelectedJob, only: str | None, timeout: float | None, as_json: bool) -> None:
    """Show the metrics of JOB, which must be running, since its driver started."""
    with driver_of(job, timeout) as driver:
        answer = driver.request(Metrics())
    if not answer.ok or answer.metrics is None:
        raise click.ClickException(answer.message)
    found = list(answer.metrics) if only in (None, _USER) else []
    if only != _USER and answer.figures is not None:
        found += builtin_metrics(answer.figures)
    if only == _BUILTIN and answer.figures is None:
        message = "The driver of the job runs an older version, which has no built-in metrics."
        raise click.ClickException(message)
    echo(found, as_json, lambda: _text(found))


def _text(found: list[MetricInfo]) -> str:
    user = [_row(metric) for metric in found if metric.scope == _USER]
    builtin = [_builtin_row(metric) for metric in found if metric.scope != _USER]
    tables = [table(user, ("COUNT",))] if user else []
    tables += [table(builtin, ("TOTAL",))] if builtin else []
    return "\n\n".join(tables) or _NONE


def _builtin_row(metric: MetricInfo) -> dict[str, str]:
    total = metric.value if metric.count is None else metric.count
    return {
        "SCOPE": metric.scope,
        "STEP": metric.step or "-",
        "METRIC": metric.name,
        "TOTAL": "-" if total is None else _number(total),
        "SUBTASKS": ", ".join(_number(value) for value in metric.subtasks.values()) or "-",
    }


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


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
