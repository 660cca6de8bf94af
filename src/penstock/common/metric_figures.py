"""What functions measured: of one task on its way to the driver, and of a job for all to see."""

from __future__ import annotations

import msgspec

__all__ = ["Marks", "MetricInfo", "Spread", "StepFigures"]


class Marks(msgspec.Struct, frozen=True):
    """Events that a meter was told of."""

    count: int
    span: int
    """Seconds over which their rate is wanted."""


class Spread(msgspec.Struct, frozen=True):
    """Values that a distribution was told of."""

    count: int
    total: float
    least: float
    most: float

    def with_(self, other: Spread) -> Spread:
        """Return the spread of both."""
        return Spread(
            self.count + other.count,
            self.total + other.total,
            min(self.least, other.least),
            max(self.most, other.most),
        )


class StepFigures(msgspec.Struct, frozen=True):
    """What one step measured in one task, by the full names of its metrics."""

    meters: dict[str, Marks] = {}
    distributions: dict[str, Spread] = {}
    gauges: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.meters or self.distributions or self.gauges)


class MetricInfo(msgspec.Struct, frozen=True):
    """A metric of a job at one moment, of all subtasks together."""

    step: str
    step_uid: str
    name: str
    kind: str
    """`counter`, `meter`, `distribution` or `gauge`."""
    count: int | None = None
    """Of a counter its value; else how many events or values there were."""
    rate: float | None = None
    """Of a meter: events per second, over its span up to now."""
    mean: float | None = None
    least: float | None = None
    most: float | None = None
    subtasks: dict[int, float] = {}
    """Of a gauge: its last value in each subtask."""
