"""The input and output metrics of vertices and subtasks, from the live figures of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.common.live_figures import LiveFigures, StageFigures, SubtaskFigures

_COUNTS = {
    "read-bytes": "numBytesIn",
    "write-bytes": "numBytesOut",
    "read-records": "numRecordsIn",
    "write-records": "numRecordsOut",
}
_TIMES = {
    "accumulated-backpressured-time": "accumulateBackPressuredTimeMs",
    "accumulated-idle-time": "accumulateIdleTimeMs",
    "accumulated-busy-time": "accumulateBusyTimeMs",
}


def io_metrics(subtasks: Iterable[Mapping[str, float]]) -> dict[str, Any]:
    """Return Flink's IO metrics, summed over subtasks.

    A count is complete if every subtask has reported it.
    """
    found = list(subtasks)
    counts: dict[str, Any] = {}
    for field, metric in _COUNTS.items():
        values = [metrics[metric] for metrics in found if metric in metrics]
        counts[field] = round(sum(values))
        counts[f"{field}-complete"] = bool(found) and len(values) == len(found)
    times = {
        field: round(sum(metrics.get(metric, 0.0) for metrics in found))
        for field, metric in _TIMES.items()
    }
    return {**counts, **times}


def stage_figures(figures: LiveFigures | None, stage: int) -> StageFigures | None:
    """Return the figures of a stage, None if there are none."""
    stages = [] if figures is None else figures.stages
    return next((found for found in stages if found.stage == stage), None)


def by_subtask(figures: StageFigures | None) -> dict[int, SubtaskFigures]:
    """Return the figures of subtasks by their index."""
    return {} if figures is None else {found.subtask: found for found in figures.subtasks}


def metrics_of(figures: StageFigures | None, parallelism: int) -> list[Mapping[str, float]]:
    """Return the metrics of all subtasks of a stage, empty where nothing is known."""
    known = by_subtask(figures)
    return [known[i].metrics if i in known else {} for i in range(parallelism)]
