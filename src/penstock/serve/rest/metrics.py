"""Metrics by Flink's names: of jobs, vertices, subtasks, task managers and the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.common.live_figures import LiveFigures, StageFigures
from penstock.common.metric_values import MetricInfo
from penstock.common.text.java_numbers import double_text
from penstock.serve.flink_json.io_metrics import by_subtask, stage_figures
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.rest.found_jobs import job_of, subtask_of, vertex_of
from penstock.serve.rest.vertices import LIVE_WAIT_S

Values = Mapping[str, float]
_AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
    "skew": lambda values: _skew(values),
}
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def of_job(call: Call) -> list[dict[str, str]]:
    """Return metrics of a job as a whole."""
    _, job = job_of(call)
    return selected(call, _job_values(figures_of(call, job)))


def of_vertex(call: Call) -> list[dict[str, str]]:
    """Return metrics of a vertex: `0.numRecordsIn`, `0.Map.numRecordsIn`."""
    _, job, vertex = vertex_of(call)
    stage = stage_figures(figures_of(call, job), vertex.stage)
    values: dict[str, float] = {}
    for index, found in _subtask_values(stage, _user(figures_of(call, job), stage)).items():
        values |= {f"{index}.{name}": value for name, value in found.items()}
    return selected(call, values)


def of_subtask(call: Call) -> list[dict[str, str]]:
    """Return metrics of one subtask."""
    _, job, vertex, index = subtask_of(call)
    figures = figures_of(call, job)
    stage = stage_figures(figures, vertex.stage)
    return selected(call, _subtask_values(stage, _user(figures, stage)).get(index, {}))


def of_subtasks(call: Call) -> list[dict[str, Any]]:
    """Return metrics aggregated over the subtasks of a vertex."""
    _, job, vertex = vertex_of(call)
    figures = figures_of(call, job)
    stage = stage_figures(figures, vertex.stage)
    values = _subtask_values(stage, _user(figures, stage))
    wanted = call.names("subtasks")
    if wanted is not None:
        ranges = _ranges(wanted)
        values = {i: found for i, found in values.items() if any(i in r for r in ranges)}
    return aggregated(call, list(values.values()))


def of_jobs(call: Call) -> list[dict[str, Any]]:
    """Return metrics aggregated over jobs."""
    wanted = call.names("jobs")
    jobs = call.context.jobs.jobs()
    if wanted is not None:
        known = {id_: job for job in jobs for id_ in (job.overview.id, hex_id(job.overview.id))}
        if unknown := [id_ for id_ in wanted if id_ not in known]:
            raise RestError(404, f"Job {unknown[0]} not found")
        jobs = [known[id_] for id_ in dict.fromkeys(wanted)]
    found = (call.context.live.of(job) for job in jobs)
    return aggregated(call, [_job_values(live.figures) for live in found if not live.is_stale])


def of_operators(call: Call) -> list[dict[str, str]]:
    """Return metrics that operators have at the driver: none."""
    vertex_of(call)
    return []


def figures_of(call: Call, job: JobView) -> LiveFigures | None:
    """Return the figures of a job, None if its driver does not report now.

    Old ones would look like those of now. A driver that is asked for the first time is waited for.
    """
    live = call.context.live.of(job, LIVE_WAIT_S)
    return None if live.is_stale else live.figures


def selected(call: Call, values: Values) -> list[dict[str, str]]:
    """Return the names of metrics or, with `get`, the values of some of them."""
    wanted = call.names("get")
    if wanted is None:
        return [{"id": name} for name in sorted(values)]
    return [{"id": name, "value": _text(values[name])} for name in wanted if name in values]


def aggregated(call: Call, components: Sequence[Values]) -> list[dict[str, Any]]:
    """Return the names of metrics or, with `get`, their values aggregated over components."""
    wanted = call.names("get")
    if wanted is None:
        return [{"id": name} for name in sorted({name for found in components for name in found})]
    chosen = [name.lower() for name in call.names("agg") or _AGGREGATIONS]
    if unknown := [name for name in chosen if name not in _AGGREGATIONS]:
        raise RestError(400, f"Cannot resolve query parameter (agg) from value {unknown[0]!r}.")
    shown = []
    for name in wanted:
        values = [found[name] for found in components if name in found]
        if not values:
            return []  # as Flink does
        shown.append({"id": name} | {how: _AGGREGATIONS[how](values) for how in chosen})
    return shown


def _job_values(figures: LiveFigures | None) -> Values:
    return {} if figures is None else figures.job


def _subtask_values(
    stage: StageFigures | None, user: Sequence[MetricInfo]
) -> dict[int, dict[str, float]]:
    """Return the metrics of every subtask: its own, those of its operators and of functions."""
    values: dict[int, dict[str, float]] = {}
    if stage is None:
        return values
    for index, subtask in by_subtask(stage).items():
        values.setdefault(index, {}).update(subtask.metrics)
    for operator in stage.operators:
        for index, metrics in operator.subtasks.items():
            prefix = _safe(operator.name)
            found = values.setdefault(index, {})
            found.update((f"{prefix}.{name}", value) for name, value in metrics.items())
    for info in user:
        for index, value in info.subtasks.items():
            values.setdefault(index, {})[f"{_safe(info.step)}.{_safe(info.name)}"] = value
    return values


def _user(figures: LiveFigures | None, stage: StageFigures | None) -> list[MetricInfo]:
    """Return the metrics of the functions of a stage."""
    if figures is None or stage is None:
        return []
    return [info for info in figures.user if info.step_uid in stage.uids]


def _safe(name: str) -> str:
    """Return a name as Flink writes it in ids of metrics, where dots separate."""
    return _UNSAFE.sub("_", name)


def _text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else double_text(value)


def _ranges(texts: Iterable[str]) -> list[range]:
    """Return the ranges of subtasks that `subtasks=0,2-4` names."""
    found = []
    for text in dict.fromkeys(texts):
        first, dash, last = text.partition("-")
        if not (first.isdecimal() and (not dash or last.isdecimal())) or len(text) > 12:
            raise RestError(400, f"Cannot resolve query parameter (subtasks) from value {text!r}.")
        end = int(last) if dash else int(first)
        found.append(range(int(first), end + 1))
    return found


def _skew(values: Sequence[float]) -> float:
    """Return the mean deviation from the average in percent of it, at most 100."""
    average = sum(values) / len(values)
    if average == 0:
        return 0.0
    deviation = sum(abs(value - average) for value in values) / len(values)
    return min(deviation / average * 100, 100.0)


_VERTEX = "/jobs/:jobid/vertices/:vertexid"
_GET = ("get",)
ENDPOINTS = [
    Endpoint("GET", "/jobs/metrics", of_jobs, "Metrics over jobs", query=("get", "agg", "jobs")),
    Endpoint("GET", "/jobs/:jobid/metrics", of_job, "Metrics of a job", query=_GET),
    Endpoint("GET", f"{_VERTEX}/metrics", of_vertex, "Metrics of a vertex", query=_GET),
    Endpoint(
        "GET",
        f"{_VERTEX}/subtasks/metrics",
        of_subtasks,
        "Metrics over the subtasks of a vertex",
        query=("get", "agg", "subtasks"),
    ),
    Endpoint(
        "GET",
        f"{_VERTEX}/subtasks/:subtaskindex/metrics",
        of_subtask,
        "Metrics of a subtask",
        query=_GET,
    ),
    Endpoint(
        "GET",
        f"{_VERTEX}/jm-operator-metrics",
        of_operators,
        "Metrics of operators at the driver: none",
        query=_GET,
    ),
]
