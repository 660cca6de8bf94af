"""Reports of published micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.common.metric_values import StepMetrics
from penstock.task.messages import SubtaskLocation

ReportListener = Callable[["MicroBatchReport", Mapping[str, Mapping[str, int]]], None]
"""Receives each report, with the counters by operator uid."""


@dataclass(frozen=True, slots=True)
class MicroBatchReport:
    """One published micro-batch."""

    stage: int
    stage_name: str
    batch: int
    tries: int
    started: float
    """When its first try was submitted, in seconds since the epoch."""
    acknowledged: float
    """When all its tasks had acknowledged."""
    published: float
    records_in: int
    records_out: int
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of the slowest task, by phase."""
    locations: tuple[SubtaskLocation | None, ...] = ()
    """Per subtask, where it ran; None if it had no task."""
    figures: Mapping[int, Mapping[str, StepMetrics]] = field(default_factory=dict)
    """Per subtask and operator uid, the metrics of functions other than counters."""

    @property
    def seconds(self) -> float:
        """From submission to publication."""
        return self.published - self.started


@dataclass(frozen=True, slots=True)
class LocalityStats:
    """How often subtasks ran where they had run before."""

    stayed: int
    moved: int
    rebuilt: int
    """How often local state had to be rebuilt from all its files."""

    @property
    def locality(self) -> float:
        """The share of runs at the previous location; 1 if there were none."""
        runs = self.stayed + self.moved
        return self.stayed / runs if runs else 1.0


def locality_stats(reports: Iterable[MicroBatchReport]) -> LocalityStats:
    """Compare where each subtask ran with its micro-batch before."""
    last: dict[tuple[int, int], SubtaskLocation] = {}
    stayed = moved = rebuilt = 0
    for report in reports:
        for subtask, location in enumerate(report.locations):
            if location is None:
                continue
            before = last.get((report.stage, subtask))
            if before is not None:
                stayed += location.is_same(before)
                moved += not location.is_same(before)
            rebuilt += location.rebuilt
            last[report.stage, subtask] = location
    return LocalityStats(stayed, moved, rebuilt)
