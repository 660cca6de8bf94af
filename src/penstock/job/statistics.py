"""Aggregates the metrics and reports of published micro-batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from penstock.common.metric_values import DistributionSummary, MeterSample, MetricInfo, StepMetrics
from penstock.job.reports import MicroBatchReport
from penstock.job.stage.manifest import add_counts

MetricKey = tuple[str, str]
"""The operator's uid and the name of the metric."""

_REPORTS_KEPT = 1_000


class JobStatistics:
    """The metrics of a job and its newest reports; region loops add, any thread reads."""

    def __init__(self, steps: Mapping[str, str], clock: Callable[[], float] = time.time) -> None:
        """Collect metrics of these steps, whose names are given by uid."""
        self._names = steps
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: deque[MicroBatchReport] = deque(maxlen=_REPORTS_KEPT)
        self._counters: dict[str, dict[str, int]] = {}
        self._meters: dict[MetricKey, _Meter] = {}
        self._distributions: dict[MetricKey, DistributionSummary] = {}
        self._gauges: dict[MetricKey, dict[int, float]] = {}

    def add(self, report: MicroBatchReport, counters: Mapping[str, Mapping[str, int]]) -> None:
        """Add a published micro-batch, with its counters by operator uid."""
        with self._lock:
            self._reports.append(report)
            add_counts(self._counters, counters)
            for subtask, steps in report.figures.items():
                for uid, step in steps.items():
                    self._add_metrics(uid, subtask, step)

    def _add_metrics(self, uid: str, subtask: int, step: StepMetrics) -> None:
        for name, sample in step.meters.items():
            self._meters.setdefault((uid, name), _Meter()).add(sample, self._clock())
        for name, new in step.distributions.items():
            before = self._distributions.get((uid, name))
            self._distributions[uid, name] = new if before is None else before.with_(new)
        for name, value in step.gauges.items():
            self._gauges.setdefault((uid, name), {})[subtask] = value

    def reports(self) -> list[MicroBatchReport]:
        """Return the newest reports, oldest first."""
        with self._lock:
            return list(self._reports)

    def accumulators(self) -> dict[str, int]:
        """Return the counters as `step.counter`; steps of the same name are added up."""
        totals: dict[str, int] = {}
        with self._lock:
            for uid, counts in self._counters.items():
                for counter, count in counts.items():
                    name = f"{self._names[uid]}.{counter}"
                    totals[name] = totals.get(name, 0) + count
        return totals

    def infos(self) -> list[MetricInfo]:
        """Return all metrics, in the order of the plan's steps."""
        order = {uid: at for at, uid in enumerate(self._names)}
        with self._lock:
            return sorted(self._infos(), key=lambda info: (order[info.step_uid], info.name))

    def _infos(self) -> Iterator[MetricInfo]:
        for uid, counts in self._counters.items():
            for name, count in counts.items():
                yield MetricInfo(self._names[uid], uid, name, "counter", count)
        now = self._clock()
        for (uid, name), meter in self._meters.items():
            step = self._names[uid]
            yield MetricInfo(step, uid, name, "meter", meter.count, meter.rate(now))
        for (uid, name), s in self._distributions.items():
            step, kind, mean = self._names[uid], "distribution", s.total / s.count
            yield MetricInfo(step, uid, name, kind, s.count, None, mean, s.least, s.most)
        for (uid, name), values in self._gauges.items():
            subtasks = dict(sorted(values.items()))
            yield MetricInfo(self._names[uid], uid, name, "gauge", subtasks=subtasks)


class _Meter:
    """The events of a meter: all of them, and those within its time span."""

    def __init__(self) -> None:
        self.count = 0
        self._span = 0
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, sample: MeterSample, now: float) -> None:
        self.count += sample.count
        self._span = sample.span
        self._recent.append((now, sample.count))
        self._forget(now)

    def rate(self, now: float) -> float:
        self._forget(now)
        return sum(count for _, count in self._recent) / self._span if self._span else 0.0

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - self._span:
            self._recent.popleft()
