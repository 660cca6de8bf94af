"""Metrics of functions: every kind, once for each published micro-batch, seen from outside."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import JobClient, MetricInfo, Types
from penstock.common.metric_values import DistributionSummary, MeterSample, StepMetrics
from penstock.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.errors import InvalidJobError, StepError
from penstock.job.reports import MicroBatchReport
from penstock.job.statistics import JobStatistics
from penstock.job.submitter import MicroBatchLostError
from penstock.metrics import Counter, Distribution, Meter, MetricGroup
from penstock.task.messages import Instruction
from tests.unit.support import WatchedSubmitter, collected, environment


class Measured(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.events = group.add_group("of", "day").meter("events", 10)
        self.values = group.distribution("values")
        self.last = [0]
        last = self.last
        group.gauge("last", lambda: last[0])

    def map(self, value: int) -> int:
        self.seen.inc()
        self.events.mark_event(2)
        self.values.update(value)
        self.last[0] = value
        return value


def run(env: StreamExecutionEnvironment, count: int = 10) -> JobClient:
    numbers = env.from_collection(range(1, count + 1), Types.LONG())
    numbers.map(Measured()).name("measured").uid("m").disable_chaining().print()
    client = env.execute_async()
    client.get_job_execution_result().result()
    return client


def by_name(metrics: list[MetricInfo]) -> dict[str, MetricInfo]:
    assert {(m.step, m.step_uid) for m in metrics} == {("measured", "m")}
    return {m.name: m for m in metrics}


def test_every_kind_of_metric_can_be_seen() -> None:
    found = by_name(run(environment()).get_metrics())
    assert list(found) == ["last", "of.day.events", "seen", "values"]
    assert (found["seen"].kind, found["seen"].count) == ("counter", 10)
    assert (found["of.day.events"].kind, found["of.day.events"].count) == ("meter", 20)
    values = found["values"]
    assert (values.kind, values.count) == ("distribution", 10)
    assert (values.least, values.most, values.mean) == (1, 10, 5.5)
    assert (found["last"].kind, found["last"].subtasks) == ("gauge", {0: 10})


def test_metrics_of_all_subtasks_are_combined() -> None:
    found = by_name(run(environment(parallelism=3), 30).get_metrics())
    assert (found["seen"].count, found["values"].count) == (30, 30)
    assert (found["values"].least, found["values"].most) == (1, 30)
    assert set(found["last"].subtasks) == {0, 1, 2}


class LosesFirstTries(WatchedSubmitter):
    def after(self, instruction: Instruction) -> None:
        if instruction.try_number == 0:
            message = "lost"
            raise MicroBatchLostError(message)


def test_a_micro_batch_that_runs_again_is_measured_once() -> None:
    watched = LosesFirstTries()
    found = by_name(run(watched.watch(environment())).get_metrics())
    assert any(i.try_number == 1 for i in watched.instructions)
    assert (found["seen"].count, found["of.day.events"].count) == (10, 20)
    assert (found["values"].count, found["values"].mean) == (10, 5.5)


class Gauged(MapFunction[int, int]):
    def __init__(self, value: Any) -> None:
        self.value = value

    def open(self, runtime_context: RuntimeContext) -> None:
        value = self.value
        runtime_context.get_metrics_group().gauge("g", lambda: value)

    def map(self, value: int) -> int:
        return value


def test_a_gauge_that_gives_no_number_is_an_error_that_names_the_step() -> None:
    with pytest.raises(StepError, match=r"'gauged'.*must return a number; it returned 'x'"):
        collected(environment().from_collection([1]).map(Gauged("x")).name("gauged"))
    with pytest.raises(InvalidJobError, match="needs a function without parameters; got 3"):
        MetricGroup().gauge("g", 3)  # type: ignore[arg-type]


def test_metrics_count_within_a_micro_batch() -> None:
    counter, meter, distribution = Counter(), Meter(5), Distribution()
    counter.inc(3)
    counter.dec()
    meter.mark_event()
    assert (counter.get_count(), meter.get_count()) == (2, 1)
    assert (counter.take(), meter.take()) == (2, MeterSample(1, 5))
    assert (counter.take(), meter.take(), distribution.take()) == (0, None, None)
    distribution.update(2)
    distribution.update(-1.5)
    assert distribution.take() == DistributionSummary(2, 0.5, -1.5, 2)


def test_a_meter_gives_the_rate_of_its_span() -> None:
    now = [100.0]
    statistics = JobStatistics({"m": "measured"}, lambda: now[0])

    def rate_after(count: int) -> float | None:
        figures = {0: {"m": StepMetrics(meters={"e": MeterSample(count, 10)})}}
        report = MicroBatchReport(0, "measured", 1, 1, 0.0, 0.0, 0.0, 1, 1, figures=figures)
        statistics.add(report, {})
        (info,) = statistics.infos()
        return info.rate

    assert rate_after(50) == 5.0
    now[0] += 9
    assert rate_after(30) == 8.0
    now[0] += 2
    assert rate_after(10) == 4.0
    now[0] += 60
    (info,) = statistics.infos()
    assert (info.rate, info.count) == (0.0, 90)
