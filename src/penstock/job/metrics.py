"""What the functions of a job measured, in published micro-batches only."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import msgspec

from penstock.common.metric_figures import Marks, MetricInfo, Spread, StepFigures
from penstock.job.manifest import add_counts

Named = tuple[str, str]
"""A metric by its operator's uid and its own name."""


class JobMetrics:
    """Adds up what tasks measured; whoever calls holds a lock."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counters: dict[str, dict[str, int]] = {}
        self._meters: dict[Named, _Meter] = {}
        self._spreads: dict[Named, Spread] = {}
        self._gauges: dict[Named, dict[int, float]] = {}

    def take(
        self,
        counters: Mapping[str, Mapping[str, int]],
        figures: Mapping[int, Mapping[str, StepFigures]],
    ) -> None:
        """Add what the tasks of a published micro-batch measured; `figures` are by subtask."""
        add_counts(self._counters, counters)
        for subtask, steps in figures.items():
            for uid, step in steps.items():
                for name, marks in step.meters.items():
                    self._meters.setdefault((uid, name), _Meter()).add(marks, self._clock())
                for name, spread in step.distributions.items():
                    before = self._spreads.get((uid, name))
                    self._spreads[uid, name] = spread if before is None else before.with_(spread)
                for name, value in step.gauges.items():
                    self._gauges.setdefault((uid, name), {})[subtask] = value

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters by operator uid."""
        return {uid: dict(counts) for uid, counts in self._counters.items()}

    def facts(self, steps: Mapping[str, str]) -> list[MetricInfo]:
        """Return all metrics, those of the first step first; `steps` are the names by uid."""
        order = {uid: at for at, uid in enumerate(steps)}
        found = sorted(self._all(), key=lambda info: (order[info.step_uid], info.name))
        return [_named(info, steps[info.step_uid]) for info in found]

    def _all(self) -> Iterator[MetricInfo]:
        for uid, counts in self._counters.items():
            for name, count in counts.items():
                yield MetricInfo("", uid, name, "counter", count)
        now = self._clock()
        for (uid, name), meter in self._meters.items():
            yield MetricInfo("", uid, name, "meter", meter.count, meter.rate(now))
        for (uid, name), s in self._spreads.items():
            mean = s.total / s.count
            yield MetricInfo("", uid, name, "distribution", s.count, None, mean, s.least, s.most)
        for (uid, name), values in self._gauges.items():
            yield MetricInfo("", uid, name, "gauge", subtasks=dict(sorted(values.items())))


class _Meter:
    """The events of a meter, and when those of its span came."""

    def __init__(self) -> None:
        self.count = 0
        self._span = 0
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, marks: Marks, now: float) -> None:
        self.count += marks.count
        self._span = marks.span
        self._recent.append((now, marks.count))
        self._forget(now)

    def rate(self, now: float) -> float:
        self._forget(now)
        return sum(count for _, count in self._recent) / self._span if self._span else 0.0

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - self._span:
            self._recent.popleft()


def _named(info: MetricInfo, step: str) -> MetricInfo:
    return msgspec.structs.replace(info, step=step)
