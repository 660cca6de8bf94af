"""What a job tells about its micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.common.metric_figures import StepFigures
from penstock.task.messages import Home

__all__ = ["MicroBatchReport", "Whereabouts", "whereabouts"]


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
    """When all its tasks had answered."""
    published: float
    records_in: int
    records_out: int
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of the slowest task, by what for."""
    homes: tuple[Home | None, ...] = ()
    """Per subtask, where it ran; None if it had nothing to run."""
    figures: Mapping[int, Mapping[str, StepFigures]] = field(default_factory=dict)
    """Per subtask and operator uid, what functions measured beside what they counted."""

    @property
    def seconds(self) -> float:
        """From submission to publication."""
        return self.published - self.started


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """How often subtasks came back to where they had run before."""

    at_home: int
    moved: int
    rebuilt: int
    """How often state had to be built out of all its files."""

    @property
    def share_at_home(self) -> float:
        """Of all that had run before; 1 if none had."""
        came = self.at_home + self.moved
        return self.at_home / came if came else 1.0


def whereabouts(reports: Iterable[MicroBatchReport]) -> Whereabouts:
    """Count where subtasks ran, each compared with its own micro-batch before."""
    last: dict[tuple[int, int], Home] = {}
    at_home = moved = rebuilt = 0
    for report in reports:
        for subtask, home in enumerate(report.homes):
            if home is None:
                continue
            before = last.get((report.stage, subtask))
            if before is not None:
                at_home += home.is_same(before)
                moved += not home.is_same(before)
            rebuilt += home.rebuilt
            last[report.stage, subtask] = home
    return Whereabouts(at_home, moved, rebuilt)
