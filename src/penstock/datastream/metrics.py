"""Metrics of user functions.

They are exact: what a task measured is added to the job's figures when its micro-batch is
published, once, however often the task was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.common.metric_figures import Marks, Spread, StepFigures
from penstock.errors import InvalidJobError

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]


class Metric:
    """The root of all metrics."""

    __slots__ = ()


class Counter(Metric):
    """A number that a function counts up or down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add `n`."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""
        self._count -= n

    def get_count(self) -> int:
        """Return what this task has counted in the current micro-batch."""
        return self._count

    def take(self) -> int:
        """Return the count and start again at zero, at the end of a micro-batch."""
        count, self._count = self._count, 0
        return count


class Meter(Metric):
    """Events, whose rate is wanted."""

    __slots__ = ("_count", "_span")

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self._count = 0
        self._span = time_span_in_seconds

    def mark_event(self, value: int = 1) -> None:
        """Tell of an event, or of several."""
        self._count += value

    def get_count(self) -> int:
        """Return how many events this task was told of in the current micro-batch."""
        return self._count

    def take(self) -> Marks | None:
        """Return the events and start again with none."""
        count, self._count = self._count, 0
        return Marks(count, self._span) if count else None


class Distribution(Metric):
    """Values, of which least, most and mean are wanted."""

    __slots__ = ("_spread",)

    def __init__(self) -> None:
        self._spread: Spread | None = None

    def update(self, value: float) -> None:
        """Tell of a value."""
        told = Spread(1, value, value, value)
        self._spread = told if self._spread is None else self._spread.with_(told)

    def take(self) -> Spread | None:
        """Return the values together and start again with none."""
        spread, self._spread = self._spread, None
        return spread


@dataclass(slots=True)
class _Metrics:
    counters: dict[str, Counter] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)
    distributions: dict[str, Distribution] = field(default_factory=dict)
    gauges: dict[str, Callable[[], float]] = field(default_factory=dict)


class MetricGroup:
    """The metrics of one operator, possibly in named groups below each other."""

    def __init__(self, metrics: _Metrics | None = None, scope: str = "") -> None:
        self._metrics = _Metrics() if metrics is None else metrics
        self._scope = scope

    def counter(self, name: str) -> Counter:
        """Return the counter of that name, made on first use."""
        return self._metrics.counters.setdefault(self._scope + name, Counter())

    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        """Let a function be asked for a number at the end of every micro-batch."""
        if not callable(obj):
            message = f"gauge {name!r} needs a function without parameters; got {obj!r}"
            raise InvalidJobError(message)
        self._metrics.gauges[self._scope + name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter of that name, made on first use."""
        return self._metrics.meters.setdefault(self._scope + name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of that name, made on first use."""
        return self._metrics.distributions.setdefault(self._scope + name, Distribution())

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group below this one; its metrics carry the group's name in front."""
        scope = f"{self._scope}{name}." + (f"{extra}." if extra is not None else "")
        return MetricGroup(self._metrics, scope)

    def take_counts(self) -> dict[str, int]:
        """Return what was counted since the last call, by full name."""
        return {name: n for name, c in self._metrics.counters.items() if (n := c.take())}

    def take_figures(self) -> StepFigures:
        """Return what else was measured since the last call, and what the gauges say now."""
        mine = self._metrics
        return StepFigures(
            {name: marks for name, m in mine.meters.items() if (marks := m.take())},
            {name: spread for name, d in mine.distributions.items() if (spread := d.take())},
            {name: _number(name, read()) for name, read in mine.gauges.items()},
        )


def _number(name: str, value: object) -> float:
    if not isinstance(value, (int, float)):
        message = f"gauge {name!r} must give a number; it gave {value!r}"
        raise InvalidJobError(message)
    return value
