"""The metrics of jobs as samples: names, labels and values as Flink's PrometheusReporter has them.

As there, a name is `flink_`, the scope and the metric, and every value is a gauge: a counter starts
again with its driver. Label values are not filtered, as with `filterLabelValueCharacters: false`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.common.live_figures import LiveFigures, OperatorFigures, StageFigures
from penstock.common.metric_values import MetricInfo

_JOB = "jobmanager_job"
_TASK = "taskmanager_job_task"
_OPERATOR = "taskmanager_job_task_operator"
_FOREIGN = re.compile("[^a-zA-Z0-9:_]")

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A running job: the id under which clients know it, its name, and its figures."""

    id: str
    name: str
    figures: LiveFigures


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric."""

    name: str
    help: str
    labels: Labels
    value: float


def samples(jobs: Iterable[JobSnapshot]) -> Iterator[Sample]:
    """Yield the samples of all jobs."""
    running = list(jobs)
    yield Sample(
        "flink_jobmanager_numRunningJobs", "numRunningJobs (scope: jobmanager)", {}, len(running)
    )
    for job in running:
        yield from _of_job(job)


def _of_job(job: JobSnapshot) -> Iterator[Sample]:
    figures = job.figures
    own = {"job_id": job.id, "job_name": job.name}
    host = "" if figures.driver is None else figures.driver.host
    for name, value in figures.job.items():
        yield _sample(_JOB, name, own | {"host": host}, value)
    for channel in figures.channels:
        labels = own | {"channel": channel.name}
        yield Sample("penstock_channel_records", "records in a channel", labels, channel.records)
        yield Sample("penstock_channel_bytes", "bytes in a channel", labels, channel.bytes)
    names: dict[str, set[str]] = {}
    places: dict[str, tuple[Labels, dict[int, Labels]]] = {}
    for stage in figures.stages:
        task = own | {"task_id": stage.uids[0] if stage.uids else "", "task_name": stage.name}
        subtasks = _of_subtasks(stage, task)
        for subtask in stage.subtasks:
            for name, value in subtask.metrics.items():
                yield _sample(_TASK, name, subtasks[subtask.subtask], value)
        for operator in stage.operators:
            labels = {"operator_id": operator.uid, "operator_name": operator.name}
            there = {i: of_subtask | labels for i, of_subtask in subtasks.items()}
            places[operator.uid] = (task | labels, there)
            names[operator.uid] = {n for m in operator.subtasks.values() for n in m}
            yield from _of_operator(operator, there)
    for metric in figures.user:
        # Late records are a counter of the window function, and built in.
        if metric.step_uid in places and metric.name not in names[metric.step_uid]:
            yield from _of_function(metric, *places[metric.step_uid])


def _of_subtasks(stage: StageFigures, task: Labels) -> dict[int, dict[str, str]]:
    return {
        s.subtask: {
            **task,
            "subtask_index": str(s.subtask),
            "tm_id": s.executor,
            "host": s.host,
        }
        for s in stage.subtasks
    }


def _of_operator(operator: OperatorFigures, places: Mapping[int, Labels]) -> Iterator[Sample]:
    for subtask, metrics in operator.subtasks.items():
        for name, value in metrics.items():
            yield _sample(_OPERATOR, name, places.get(subtask, {}), value)


def _of_function(
    metric: MetricInfo, operator: Labels, subtasks: Mapping[int, Labels]
) -> Iterator[Sample]:
    """Yield a user metric: by subtask where it is known by subtask, else of the operator."""
    if metric.subtasks:
        for subtask, value in metric.subtasks.items():
            yield _sample(_OPERATOR, metric.name, subtasks.get(subtask, operator), value)
    elif metric.kind == "meter":
        yield _sample(_OPERATOR, metric.name, operator, metric.rate or 0.0)
    elif metric.kind == "counter":
        yield _sample(_OPERATOR, metric.name, operator, metric.count or 0)
    if metric.kind == "distribution":
        parts = {
            "count": metric.count,
            "mean": metric.mean,
            "min": metric.least,
            "max": metric.most,
        }
        for part, number in parts.items():
            yield _sample(_OPERATOR, f"{metric.name}_{part}", operator, number or 0.0)


def _sample(scope: str, metric: str, labels: Labels, value: float) -> Sample:
    name = f"flink_{scope}_{_FOREIGN.sub('_', metric)}"
    return Sample(name, f"{metric} (scope: {scope})", labels, value)
