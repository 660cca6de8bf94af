"""The values of metrics: of one task, and of a whole job."""

from __future__ import annotations

import msgspec

__all__ = ["DistributionSummary", "MeterSample", "MetricInfo", "StepMetrics"]


class MeterSample(msgspec.Struct, frozen=True):
    """The events of a meter."""

    count: int
    span: int
    """Seconds over which the rate is computed."""


class DistributionSummary(msgspec.Struct, frozen=True):
    """The summary of a distribution's values."""

    count: int
    total: float
    least: float
    most: float

    def with_(self, other: DistributionSummary) -> DistributionSummary:
        """Return the summary of both."""
        return DistributionSummary(
            self.count + other.count,
            self.total + other.total,
            min(self.least, other.least),
            max(self.most, other.most),
        )


class StepMetrics(msgspec.Struct, frozen=True):
    """The metrics of one step in one task, by their full names."""

    meters: dict[str, MeterSample] = {}
    distributions: dict[str, DistributionSummary] = {}
    gauges: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.meters or self.distributions or self.gauges)


class MetricInfo(msgspec.Struct, frozen=True):
    """A metric of a job, over all subtasks."""

    step: str
    step_uid: str
    name: str
    kind: str
    """`counter`, `meter`, `distribution` or `gauge`."""
    count: int | None = None
    """The value of a counter, else the number of events or values."""
    rate: float | None = None
    """Of a meter: events per second, over its time span up to now."""
    mean: float | None = None
    least: float | None = None
    most: float | None = None
    subtasks: dict[int, float] = {}
    """Of a gauge its last value, of a counter in live figures its count, in each subtask."""
    scope: str = "user"
    """`user` of a metric of a function; of a built-in one `job`, `task` or `operator`."""
    value: float | None = None
    """Of a gauge of the job: its last value."""
