"""The job that is killed: `python -m tests.crash.pipeline VARIANT.json` starts it or goes on.

Two sources of different pace → keyed counts and totals → a second keyed step with list state → a
step with operator state → files. Whoever starts it again after a kill says nothing new.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from penstock.common import Configuration, Encoder, Row, Types, WatermarkStrategy
from penstock.connectors.source import Chunk, SplitRange
from penstock.datastream import (
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.errors import PenstockError
from penstock.testing import (
    Burst,
    CrashPoint,
    Pause,
    ScriptedFailures,
    ScriptedSource,
    arm,
    run_inline,
)
from tests.crash.broken import break_as_told
from tests.crash.ledger_input import SLOW, Result, bucket_of, key_of, value_of

JOB = "killed"
NO_SPACE = "PENSTOCK_TEST_NO_SPACE"
"""`call:first:last`: which calls of os.fsync, os.link or os.replace find the disk full."""
FREEZE_AT = "PENSTOCK_TEST_FREEZE_AT"
"""`point:nth`: where the process stops and waits for somebody to let it go on."""
CRASH_BEHIND = "PENSTOCK_TEST_CRASH_BEHIND"
"""`point:nth point:nth`: the process dies at the second one, counted from the first one on."""

RESULT_TYPE = Types.ROW_NAMED(
    list(Result._fields),
    [Types.LONG()] * 7 + [Types.STRING(), Types.LONG()],
)


class Variant(msgspec.Struct, frozen=True):
    """What a run of the job looks like; everything but faults."""

    directory: str
    fast: int = 900
    slow: int = 60
    parallelism: int = 2
    backend: str = "hashmap"
    parquet: bool = False
    rolls_at_checkpoint: bool = True
    interval_ms: int | None = 40
    records: int | None = None
    concurrent: int = 1
    mode: str = "EXACTLY_ONCE"
    retained: int = 1
    incremental: bool = False
    synchronous: bool = False
    failures: tuple[int, ...] = ()
    restore: str | None = None
    max_batch: int = 60
    pause_ms: int = 12
    lag_ms: int = 0
    """How long the slow source takes to read, so that its barriers come late."""
    spark: bool = False
    settings: dict[str, str] = {}

    @property
    def output(self) -> Path:
        """Where its results go."""
        return Path(self.directory) / "output"

    @property
    def checkpoints(self) -> Path:
        """Its checkpoint directory."""
        return Path(self.directory) / "checkpoints"

    @property
    def savepoints(self) -> Path:
        """Its savepoint directory."""
        return Path(self.directory) / "savepoints"


class LaggingSource(ScriptedSource):
    """Takes its time to read."""

    def __init__(self, scripts: dict[str, list[Any]], seconds: float) -> None:
        super().__init__(scripts, Types.LONG())
        self._seconds = seconds

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        time.sleep(self._seconds)
        return super().read(split_range)


class Totals(KeyedProcessFunction[int, int, Row]):
    """Counts and adds up the events of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        n, total = (self._n.value() or 0) + 1, (self._total.value() or 0) + value_of(value)
        self._n.update(n)
        self._total.update(total)
        yield Row(value, ctx.get_current_key(), n, total)


class Recent(KeyedProcessFunction[int, Row, Row]):
    """Numbers the events of a bucket, and remembers the last three in a list."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._m = runtime_context.get_state(ValueStateDescriptor("m", Types.LONG()))
        self._last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        m = (self._m.value() or 0) + 1
        last = [*self._last.get(), value[0]][-3:]
        self._m.update(m)
        self._last.update(last)
        yield Row(*value, ctx.get_current_key(), m, sum(last))


class Stamps(MapFunction[Row, Row], CheckpointedFunction):
    """Stamps events with a token of its own and a number, both kept in operator state."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("stamps", Types.TUPLE([Types.STRING(), Types.LONG()]))
        self._state = context.get_operator_state_store().get_list_state(descriptor)
        self._stamps = [tuple(stamp) for stamp in self._state.get()]

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._state.update(list(self._stamps))

    def map(self, value: Row) -> Row:
        if not self._stamps:
            self._stamps.append((uuid4().hex[:12], 0))
        token, number = self._stamps[0]
        self._stamps[0] = (token, number + 1)
        return Row(*value, token, number + 1)


def as_line(row: Row) -> str:
    return ",".join(map(str, row))


def build(variant: Variant) -> StreamExecutionEnvironment:
    """Make the program."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration(variant))
    if not variant.spark:
        run_inline(env)
    env.set_parallelism(variant.parallelism)
    pause = Pause(variant.pause_ms / 1000)
    fast = [
        step
        for start in range(0, variant.fast, 30)
        for step in (Burst(range(start, min(start + 30, variant.fast))), pause)
    ]
    slow = [
        step
        for start in range(SLOW, SLOW + variant.slow, 3)
        for step in (pause, pause, Burst(range(start, min(start + 3, SLOW + variant.slow))))
    ]

    def source(name: str, steps: list[Any]) -> Any:
        lag = variant.lag_ms / 1000 if name == "slow" else 0.0
        scripted = LaggingSource({name: steps}, lag)
        stream = env.from_source(scripted, WatermarkStrategy.no_watermarks(), name).uid(name)
        return stream.set_parallelism(1)

    failing = ScriptedFailures(variant.directory, on=variant.failures)
    (
        source("fast", fast)
        .union(source("slow", slow))
        .map(failing, Types.LONG())
        .uid("failing")
        .set_parallelism(1)
        .key_by(key_of, Types.LONG())
        .process(Totals(), Types.ROW([Types.LONG()] * 4))
        .uid("totals")
        .key_by(lambda row: bucket_of(row[1]), Types.LONG())
        .process(Recent(), Types.ROW([Types.LONG()] * 7))
        .uid("recent")
        .map(Stamps(), RESULT_TYPE)
        .uid("stamps")
        .sink_to(sink(variant))
        .uid("files")
    )
    return env


def sink(variant: Variant) -> FileSink:
    """Make the sink."""
    if variant.parquet:
        names = OutputFileConfig.builder().with_part_suffix(".parquet").build()
        return (
            FileSink.for_bulk_format(variant.output, ParquetBulkWriters.for_row_type(RESULT_TYPE))
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .with_output_file_config(names)
            .build()
        )
    policy: RollingPolicy = RollingPolicy.on_checkpoint_rolling_policy()
    if not variant.rolls_at_checkpoint:
        policy = RollingPolicy.default_rolling_policy(part_size=4_000)
    return (
        FileSink.for_row_format(variant.output, _Lines())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(policy)
        .build()
    )


class _Lines(Encoder):
    def encode(self, element: Any, type_info: Any) -> bytes:
        return as_line(element).encode() + b"\n"


def configuration(variant: Variant) -> Configuration:
    """Spell out the settings of a variant."""
    settings = {
        "penstock.job-id": JOB,
        "execution.checkpointing.dir": str(variant.checkpoints),
        "execution.checkpointing.savepoint-dir": str(variant.savepoints),
        "execution.checkpointing.mode": variant.mode,
        "execution.checkpointing.max-concurrent-checkpoints": str(variant.concurrent),
        "execution.checkpointing.num-retained": str(variant.retained),
        "execution.checkpointing.incremental": str(variant.incremental).lower(),
        "penstock.state.snapshot": "synchronous" if variant.synchronous else "asynchronous",
        "penstock.state.local-dir": str(Path(variant.directory) / "local"),
        "penstock.state.compact-after-deltas": "6",
        "penstock.micro-batch.max-records": str(variant.max_batch),
        "penstock.micro-batch.initial-records": str(variant.max_batch),
        "penstock.source.poll-interval": "10 ms",
        "state.backend.type": variant.backend,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    if variant.interval_ms is not None:
        settings["execution.checkpointing.interval"] = f"{variant.interval_ms} ms"
    if variant.records is not None:
        settings["penstock.checkpoint.records"] = str(variant.records)
    if variant.restore is not None:
        settings["execution.state-recovery.path"] = variant.restore
    return Configuration.from_dict({**settings, **variant.settings})


def fill_the_disk(script: str) -> None:
    """Let some calls of a function of `os` raise ENOSPC, from now on and in this process."""
    name, first, last = script.split(":")
    real: Callable[..., Any] = getattr(os, name)
    calls, lock = [0], threading.Lock()

    def call(*args: Any, **kwargs: Any) -> Any:
        with lock:
            calls[0] += 1
            is_full = int(first) <= calls[0] <= int(last)
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **kwargs)

    setattr(os, name, call)


def main(path: Path) -> int:
    """Run it; the exit code is 0 only if the job has finished."""
    variant = msgspec.json.decode(path.read_bytes(), type=Variant)
    if script := os.environ.get(NO_SPACE):
        fill_the_disk(script)
    break_as_told(os.environ)
    if where := os.environ.get(FREEZE_AT):
        point, nth = where.split(":")
        arm(CrashPoint(point), int(nth), lambda: os.kill(os.getpid(), signal.SIGSTOP))
    if where := os.environ.get(CRASH_BEHIND):
        (first, _, nth), (second, _, then) = (one.partition(":") for one in where.split())
        arm(CrashPoint(first), int(nth), lambda: arm(CrashPoint(second), int(then)))
    try:
        build(variant).execute(JOB)
    except PenstockError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
