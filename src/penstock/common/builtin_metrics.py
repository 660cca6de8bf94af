"""The built-in metrics of a job as a list, and which of them are counters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from penstock.common.live_figures import LiveFigures
from penstock.common.metric_values import MetricInfo

__all__ = ["builtin_metrics", "is_counter"]

_COUNTER = re.compile(
    "num(Records|Bytes)(In|Out|Send)|numLateRecordsDropped|accumulate.*TimeMs|"
    "(numberOf(Completed|Failed)|totalNumberOf)Checkpoints|(num|full)Restarts"
)
_COUNT = re.compile("num(Records|Bytes)(In|Out|Send)|numLateRecordsDropped")


def is_counter(name: str) -> bool:
    """Whether a metric only grows while its driver runs."""
    return _COUNTER.fullmatch(name) is not None


def builtin_metrics(figures: LiveFigures) -> list[MetricInfo]:
    """Return the metrics of the job, then of each stage, each followed by its operators."""
    return list(_metrics(figures))


def _metrics(figures: LiveFigures) -> Iterator[MetricInfo]:
    for name, value in sorted(figures.job.items()):
        yield MetricInfo("", "", name, _kind(name), scope="job", value=value)
    for stage in figures.stages:
        uid = stage.uids[0] if stage.uids else ""
        of_tasks = {s.subtask: s.metrics for s in stage.subtasks}
        yield from _of_subtasks(stage.name, uid, "task", of_tasks)
        for operator in stage.operators:
            yield from _of_subtasks(operator.name, operator.uid, "operator", operator.subtasks)


def _of_subtasks(
    step: str, uid: str, scope: str, subtasks: Mapping[int, Mapping[str, float]]
) -> Iterator[MetricInfo]:
    for name in sorted({name for metrics in subtasks.values() for name in metrics}):
        values = {i: m[name] for i, m in sorted(subtasks.items()) if name in m}
        # A sum of times that were taken at the same time would mean nothing.
        total = int(sum(values.values())) if _COUNT.fullmatch(name) else None
        yield MetricInfo(step, uid, name, _kind(name), total, subtasks=values, scope=scope)


def _kind(name: str) -> str:
    return "counter" if is_counter(name) else "gauge"
