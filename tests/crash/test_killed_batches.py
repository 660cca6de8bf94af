"""Workers killed with -9 in the middle of a function over record batches."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.collect_sink import CollectSink
from penstock.datastream import KeyedBatchFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from tests.crash.ledger import KEYS, Fuse, Line, assert_one_execution

pytestmark = [pytest.mark.crash, pytest.mark.spark]

RECORDS = 2_000
LINE = Types.TUPLE([Types.LONG()] * 5)
SUMS = Types.TUPLE([Types.LONG(), Types.LONG()])


class BatchLedger(KeyedBatchFunction):
    """The ledger, by the batch: a running total of random draws per key."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sums = runtime_context.get_state(ValueStateDescriptor("sums", SUMS))
        self._records = runtime_context.get_metrics_group().counter("records")

    def process_batch(
        self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context
    ) -> Iterable[pa.RecordBatch]:
        keys, stored = ctx.keys.values(), self._sums.get_many(ctx.keys).to_pylist()
        sums = [(0, 0) if one is None else (one["f0"], one["f1"]) for one in stored]
        numbers, lines = batch.column("value").to_pylist(), []
        for place, _ in zip(ctx.keys.index.to_pylist(), numbers, strict=True):
            (before, count), draw = sums[place], random.SystemRandom().randrange(1 << 40)
            sums[place] = before + draw, count + 1
            lines.append((keys[place], count + 1, draw, before, before + draw))
            self._records.inc()
        self._sums.put_many(ctx.keys, [{"f0": total, "f1": count} for total, count in sums])
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, pa.int64()) for column in zip(*lines, strict=True)],
            [f"f{position}" for position in range(5)],
        )
        # State is written and output given: all of it must go with the worker.
        if 700 in numbers or 1500 in numbers:
            self._fuse.blow()


def test_a_worker_killed_after_its_batch_keeps_the_output_exact(tmp_path: Path) -> None:
    fuse = Fuse(tmp_path, times=2)
    configuration = Configuration.from_dict({"penstock.micro-batch.max-records": "400"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    lines: list[Line] = []
    numbers = env.from_source(
        NumberSequenceSource(0, RECORDS - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    step = numbers.key_by(lambda n: n % KEYS, Types.LONG()).process_batch(BatchLedger(fuse), LINE)
    step.name("KEYED PROCESS").sink_to(CollectSink(lines.extend))
    counters = env.execute("batch ledger").get_all_accumulator_results()
    assert fuse.blown() == 2
    assert_one_execution(lines, counters, RECORDS)
