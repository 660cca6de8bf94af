"""Metrics of user functions.

They are exact: the values of a task are added to the job's metrics when its micro-batch is
published, once, however often the task was retried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.common.metric_values import DistributionSummary, MeterSample, StepMetrics
from penstock.errors import InvalidJobError

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]


class Metric:
    """The base class of all metrics."""

    __slots__ = ()


class Counter(Metric):
    """A counter that can be incremented and decremented."""

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
        """Return the count of this task in the current micro-batch."""
        return self._count

    def take(self) -> int:
        """Return the count and start again at zero, at the end of a micro-batch."""
        count, self._count = self._count, 0
        return count


class Meter(Metric):
    """Measures the rate of events."""

    __slots__ = ("_count", "_span")

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self._count = 0
        self._span = time_span_in_seconds

    def mark_event(self, value: int = 1) -> None:
        """Record an event, or several."""
        self._count += value

    def get_count(self) -> int:
        """Return the number of events of this task in the current micro-batch."""
        return self._count

    def take(self) -> MeterSample | None:
        """Return the events and start again at zero."""
        count, self._count = self._count, 0
        return MeterSample(count, self._span) if count else None


class Distribution(Metric):
    """Measures minimum, maximum and mean of values."""

    __slots__ = ("_summary",)

    def __init__(self) -> None:
        self._summary: DistributionSummary | None = None

    def update(self, value: float) -> None:
        """Record a value."""
        summary = DistributionSummary(1, value, value, value)
        self._summary = summary if self._summary is None else self._summary.with_(summary)

    def take(self) -> DistributionSummary | None:
        """Return the summary of the values and start again with none."""
        summary, self._summary = self._summary, None
        return summary


@dataclass(slots=True)
class _Metrics:
    counters: dict[str, Counter] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)
    distributions: dict[str, Distribution] = field(default_factory=dict)
    gauges: dict[str, Callable[[], float]] = field(default_factory=dict)


class MetricGroup:
    """The metrics of one operator, possibly in nested groups."""

    def __init__(self, metrics: _Metrics | None = None, scope: str = "") -> None:
        self._metrics = _Metrics() if metrics is None else metrics
        self._scope = scope

    def counter(self, name: str) -> Counter:
        """Return the counter of that name, made on first use."""
        return self._metrics.counters.setdefault(self._scope + name, Counter())

    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        """Register a function that is called for a number at the end of every micro-batch."""
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
        """Return a subgroup; the names of its metrics are prefixed with its name."""
        scope = f"{self._scope}{name}." + (f"{extra}." if extra is not None else "")
        return MetricGroup(self._metrics, scope)

    def take_counts(self) -> dict[str, int]:
        """Return the counts since the last call, by full name."""
        return {name: n for name, c in self._metrics.counters.items() if (n := c.take())}

    def take_metrics(self) -> StepMetrics:
        """Return the other metrics since the last call, and the current values of gauges."""
        mine = self._metrics
        return StepMetrics(
            {name: events for name, m in mine.meters.items() if (events := m.take())},
            {name: values for name, d in mine.distributions.items() if (values := d.take())},
            {name: _number(name, read()) for name, read in mine.gauges.items()},
        )


def _number(name: str, value: object) -> float:
    if not isinstance(value, (int, float)):
        message = f"gauge {name!r} must return a number; it returned {value!r}"
        raise InvalidJobError(message)
    return value
