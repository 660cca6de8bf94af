"""Minimum, maximum, average and percentiles of measured values."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import Any

_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_OF_TASKS = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}


def summary(values: Iterable[float]) -> dict[str, Any]:
    """Return the statistics that Flink shows of checkpoints; of nothing they are NaN and 0."""
    found = sorted(values)
    if not found:
        return {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(_PERCENTILES, "NaN")}
    average = round(sum(found) / len(found))
    shown: dict[str, Any] = {"min": round(found[0]), "max": round(found[-1]), "avg": average}
    return shown | {name: float(percentile(found, q)) for name, q in _PERCENTILES.items()}


def task_summary(values: Iterable[float]) -> dict[str, int]:
    """Return the statistics that Flink shows of the subtasks of a vertex."""
    found = sorted(values)
    if not found:
        return dict.fromkeys(("min", "max", "avg", "sum", *_OF_TASKS), 0)
    total = sum(found)
    shown = {"min": found[0], "max": found[-1], "avg": total / len(found), "sum": total}
    shown |= {name: percentile(found, q) for name, q in _OF_TASKS.items()}
    return {name: round(value) for name, value in shown.items()}


def percentile(ordered: list[float], share: float) -> float:
    """Return the value below which a share of sorted values lies, between its neighbours.

    The position is `share * (n + 1)`, as in the library that Flink uses.
    """
    position = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    low = floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])
