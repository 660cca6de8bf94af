"""A job whose output shows whether any micro-batch mixes two executions, and its verifier.

Each record of a key draws a random number and adds it to the key's total in state; what is
emitted is (key, n, draw, total before, total after). If state, output or counters came from
different executions of a micro-batch, the chain of totals would break.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.collect_sink import CollectSink
from penstock.connectors.contracts.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor

Line = tuple[int, int, int, int, int]
KEYS = 37


class Fuse:
    """Kills the process that blows it, a limited number of times over all processes."""

    def __init__(self, directory: Path, times: int) -> None:
        self._directory = directory
        self._times = times

    def blow(self) -> None:
        """Kill this process with -9 unless all times are used up."""
        for i in range(self._times):
            try:
                (self._directory / f"blown-{i}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    def blown(self) -> int:
        """Return how many processes it killed."""
        return len(list(self._directory.glob("blown-*")))


class Ledger(KeyedProcessFunction[int, int, Line]):
    """Keeps a running total of random draws per key, and a list of them."""

    def __init__(self, on_record: Callable[[int], None] | None = None) -> None:
        self._on_record = on_record

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._draws = runtime_context.get_list_state(ListStateDescriptor("draws", Types.LONG()))
        self._records = runtime_context.get_metrics_group().counter("records")

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Line]:
        if self._on_record is not None:
            self._on_record(value)
        draw = random.SystemRandom().randrange(1 << 40)
        before = self._total.value() or 0
        self._draws.add(draw)
        self._total.update(before + draw)
        self._records.inc()
        draws = list(self._draws.get())
        assert sum(draws) == before + draw, "value state and list state are of different versions"
        yield ctx.get_current_key(), len(draws), draw, before, before + draw


def delayed_kill(fuse: Fuse, seconds: float) -> Callable[[int], None]:
    """Return a hook that blows the fuse from a thread, some time after the first record."""
    started: list[bool] = []

    def on_record(_: int) -> None:
        if not started:
            started.append(True)

            def later() -> None:
                time.sleep(seconds)
                fuse.blow()

            threading.Thread(target=later, daemon=True).start()

    return on_record


class FusedSink(Sink):
    """Collects, and blows its fuse when everything else of the task is staged."""

    def __init__(self, inner: Sink, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def writer(self, context: WriterContext) -> SinkWriter:
        return _FusedWriter(self._inner.writer(context), self._fuse)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return self._inner.publisher(context)


class _FusedWriter(SinkWriter):
    def __init__(self, inner: SinkWriter, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def write(self, value: Any) -> None:
        self._inner.write(value)

    def stage(self) -> bytes:
        staged = self._inner.stage()
        self._fuse.blow()
        return staged


def run_ledger(
    records: int,
    *,
    on_record: Callable[[int], None] | None = None,
    key: Callable[[int], int] = lambda n: n % KEYS,
    sink_fuse: Fuse | None = None,
    settings: dict[str, str] | None = None,
) -> tuple[list[Line], dict[str, Any], list[Any]]:
    """Run the job on Spark; return what it emitted, its counters and its micro-batches."""
    configuration = Configuration.from_dict(
        {"penstock.micro-batch.max-records": "400", **(settings or {})}
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    lines: list[Line] = []
    sink: Sink = CollectSink(lines.extend)
    source = NumberSequenceSource(0, records - 1)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").key_by(
        key, Types.LONG()
    ).process(Ledger(on_record)).sink_to(FusedSink(sink, sink_fuse) if sink_fuse else sink)
    result = env.execute("ledger")
    return lines, result.get_all_accumulator_results(), list(result.get_micro_batches())


def assert_one_execution(lines: list[Line], counters: dict[str, Any], records: int) -> None:
    """Check, from the outside, that every record counted once and totals never broke."""
    expected: dict[int, int] = defaultdict(int)
    for n in range(records):
        expected[n % KEYS] += 1
    by_key: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line[0]].append(line)
    assert {k: len(v) for k, v in by_key.items()} == expected
    for key, emitted in by_key.items():
        total = 0
        for position, (_, n, draw, before, after) in enumerate(emitted, start=1):
            assert (n, before, after) == (position, total, total + draw), f"key {key} at {n}"
            total = after
    assert counters == {"KEYED PROCESS.records": records}
