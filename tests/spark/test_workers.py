"""How a job uses Spark's Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource

pytestmark = pytest.mark.spark


class WhoAmI(KeyedProcessFunction[int, int, tuple[int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._opened = runtime_context.get_metrics_group().counter("opened")
        self._opened.inc()

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[int, int]]:
        yield os.getpid(), value


def run_small_batches(env: StreamExecutionEnvironment) -> tuple[set[int], int]:
    source = NumberSequenceSource(1, 4000)
    stream = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .key_by(lambda n: n % 10, Types.LONG())
        .process(WhoAmI())
    )
    with stream.execute_and_collect() as results:
        pids = {pid for pid, _ in results}
        batches = [b for b in results.get_micro_batches() if b.stage == 1]
    return pids, len(batches)


def test_workers_are_reused_by_the_next_micro_batch() -> None:
    configuration = Configuration.from_dict({"penstock.micro-batch.max-records": "200"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    pids, batches = run_small_batches(env.set_parallelism(2))
    assert batches >= 10
    # Two stages of two subtasks: more processes would mean that workers were not reused.
    assert len(pids) <= 4
