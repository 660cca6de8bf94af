"""The job that is killed: `python -m tests.crash.pipeline VARIANT.json` starts or resumes it.

Two sources of different pace → keyed counts and totals, of their union or of pairs of the two → a
second keyed step with list state → a step with operator state → files. Starting it again
after a kill says nothing new.
"""

from __future__ import annotations

import errno
import itertools
import json
import multiprocessing.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.common import Configuration, Encoder, Row, Types, WatermarkStrategy
from penstock.common.config.checkpoint_options import CHECKPOINT_HISTORY
from penstock.common.storage_url import Location, StorageUrl
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.errors import PenstockError
from penstock.job.input.in_flight_data_collector import InFlightDataCollector
from penstock.job.submitter import MicroBatchLostError
from penstock.testing import Burst, CrashPoint, Idle, Pause, ScriptedFailures, arm, run_inline
from penstock.testing.inline import InlineSubmitter
from tests.crash.broken_engines import break_as_told
from tests.crash.file_input import PacedFiles
from tests.crash.ledger_input import RIVAL, SLOW, bucket_of, key_of
from tests.crash.pipeline_steps import (
    COUNTED,
    PLACED,
    STAMPED,
    Join,
    LaggingSource,
    Pace,
    Recent,
    Stamps,
    Totals,
)
from tests.crash.separate_tasks import separate_tasks

JOB = "killed"
BUCKET = "jobs"
EXCHANGE = "penstock.exchange"
NO_SPACE = "PENSTOCK_TEST_NO_SPACE"
"""`call:first:last[:where]`: which calls of os.fsync, os.link or os.replace find the disk full.

With `where` only those of os.fsync count whose file has that in its path.
"""
FREEZE_AT = "PENSTOCK_TEST_FREEZE_AT"
"""`point:nth`: where the process stops and waits until the test lets it continue."""
CRASH_BEHIND = "PENSTOCK_TEST_CRASH_BEHIND"
"""`point:nth point:nth`: the process dies at the second one, counted from the first one on."""

DIE_IN_FLIGHT = "PENSTOCK_TEST_DIE_IN_FLIGHT"
"""`point`: the process dies there once a checkpoint counts that holds a backlog of two inputs."""
LOSE = "PENSTOCK_TEST_LOSE"
"""`n,m`: which micro-batches, counted over all stages, are lost when their tasks have staged all.

Only without Spark, where nothing gets lost by itself.
"""

CLOCK = "PENSTOCK_TEST_CLOCK"
"""`after:by`: after how many seconds the wall clock of this process jumps, and how far."""

AUDIT = "PENSTOCK_TEST_AUDIT"
"""A file that gets the names of everything that pickles of this process have loaded."""


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
    """How long a source waits after each burst: 30 records of the fast one, 3 of the slow one."""
    stays: bool = False
    """Whether its sources stay open after their last record: it ends only on request."""
    lag_ms: int = 0
    """How long the slow source takes to read, so that its barriers come late."""
    joins: bool = False
    """Whether the sources are the two inputs of one step, and not united before it."""
    think_ms: float = 0
    """How long the first keyed step takes for a record, so that its inputs pile up."""
    gated: bool = False
    """Whether it waits before the first until the test opens its gate."""
    unaligned: bool = False
    aligned_timeout_ms: int = 0
    spark: bool = False
    settings: dict[str, str] = {}
    has_rival: bool = False
    """Whether another job of the same id has written into the same output path."""
    rival_of: str = ""
    """The directory of the job into whose output path this one writes too."""
    files: str = ""
    """Whether the fast source reads files: `bounded` or `watched`; empty if it does not."""
    small: str = ""
    """Which of its directories is on a small file system: `checkpoints`, `work` or `output`."""
    disk: str = ""
    """Where that file system is mounted."""
    in_store: bool = False
    """Whether its checkpoints and savepoints are in S3."""
    store: str = ""
    """The directory in which the server of that store has the objects as files."""
    store_options: dict[str, str] = {}
    separate: bool = False
    """Whether its subtasks run on hosts that share no directory but input and output."""
    moves: tuple[int, ...] = ()
    """The micro-batches, over all stages, before which they change hosts."""

    def rival(self) -> Variant:
        """Return another job of the same id with the same output path, and its own events."""
        directory = str(Path(self.directory) / "rival")
        return Variant(
            directory,
            300,
            30,
            parquet=self.parquet,
            rival_of=self.directory,
            pause_ms=8,
            small=self.small if self.small == "output" else "",
            disk=self.disk,
        )

    @property
    def first(self) -> int:
        """Its first event; a rival has others, so that its rows can be told apart."""
        return RIVAL if self.rival_of else 0

    @property
    def output(self) -> Path:
        """Where its results go."""
        return self._on_disk("output", self.rival_of or self.directory) / "output"

    @property
    def consumed(self) -> Path:
        """Where the consumer of its output has moved some of it."""
        return self._on_disk("output", self.directory) / "consumed"

    @property
    def checkpoints(self) -> Location:
        """Its checkpoint directory."""
        if self.in_store:
            return self._in_store / "checkpoints"
        return self._on_disk("checkpoints", self.directory) / "checkpoints"

    @property
    def work(self) -> Path:
        """Where its attempts keep what only they need."""
        return self._on_disk("work", self.directory) / "work"

    @property
    def gate(self) -> Path:
        """A file that opens the gate of the first keyed step."""
        return Path(self.directory) / "open"

    @property
    def savepoints(self) -> Location:
        """Its savepoint directory."""
        return (self._in_store if self.in_store else Path(self.directory)) / "savepoints"

    @property
    def _in_store(self) -> StorageUrl:
        return StorageUrl("s3", BUCKET, (), self.store_options)

    @property
    def input(self) -> Path:
        """Where the files of its fast source are."""
        return Path(self.directory) / "input"

    def _on_disk(self, name: str, otherwise: str) -> Path:
        return Path(self.disk if self.disk and name == self.small else otherwise)


def as_line(row: Row) -> str:
    return ",".join(map(str, row))


def build(variant: Variant) -> StreamExecutionEnvironment:
    """Make the program."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration(variant))
    if not variant.spark:
        run_inline(env)
    if variant.separate:
        separate_tasks(env, Path(variant.directory) / "hosts", variant.moves)
    env.set_parallelism(variant.parallelism)
    fast, slow = sources(env, variant)
    (
        (joined if variant.joins else united)(variant, fast, slow)
        .key_by(lambda row: bucket_of(row[1]), Types.LONG())
        .process(Recent(), PLACED)
        .uid("recent")
        .map(Stamps(), STAMPED)
        .uid("stamps")
        .sink_to(sink(variant))
        .uid("files")
    )
    return env


def sources(env: StreamExecutionEnvironment, variant: Variant) -> tuple[DataStream, DataStream]:
    """Make the two sources."""
    pause = Pause(variant.pause_ms / 1000)
    first, slowest = variant.first, variant.first + SLOW
    fast = [
        step
        for start in range(first, first + variant.fast, 30)
        for step in (Burst(range(start, min(start + 30, first + variant.fast))), pause)
    ]
    slow = [
        step
        for start in range(slowest, slowest + variant.slow, 3)
        for step in (pause, pause, Burst(range(start, min(start + 3, slowest + variant.slow))))
    ]

    def source(name: str, steps: list[Any], lag: float) -> DataStream:
        last = [Idle()] if variant.stays else []
        scripted = LaggingSource({name: [*steps, *last]}, lag)
        stream = env.from_source(scripted, WatermarkStrategy.no_watermarks(), name).uid(name)
        return stream.set_parallelism(1)

    lagging = source("slow", slow, variant.lag_ms / 1000)
    return (from_files(env, variant) if variant.files else source("fast", fast, 0.0)), lagging


def from_files(env: StreamExecutionEnvironment, variant: Variant) -> DataStream:
    """Make the fast source read files."""
    # Slower than scripted ones: a file is to be read for longer than a checkpoint takes.
    line_s, watched = 0.001 + variant.pause_ms / 30_000, variant.files == "watched"
    files = PacedFiles.of(variant.input, variant.fast, line_s, watched=watched)
    lines = env.from_source(files, WatermarkStrategy.no_watermarks(), "fast").uid("fast")
    return lines.set_parallelism(1).map(int, Types.LONG()).uid("numbers").set_parallelism(1)


def united(variant: Variant, fast: DataStream, slow: DataStream) -> DataStream:
    """Count and add up the events of both sources."""
    return (
        fast.union(slow)
        .map(_failing(variant), Types.LONG())
        .uid("failing")
        .set_parallelism(1)
        .key_by(key_of, Types.LONG())
        .process(Totals(_pace(variant)), COUNTED)
        .uid("totals")
    )


def joined(variant: Variant, fast: DataStream, slow: DataStream) -> DataStream:
    """Let events of one source meet those of the other; any of these stages may fail."""
    fast = fast.map(_failing(variant), Types.LONG()).uid("failing-fast").set_parallelism(1)
    slow = slow.map(_failing(variant), Types.LONG()).uid("failing-slow").set_parallelism(1)
    return (
        fast.connect(slow)
        .key_by(key_of, key_of, Types.LONG())
        .process(Join(_pace(variant)), COUNTED)
        .uid("join")
        .map(_failing(variant), COUNTED)
        .uid("failing-join")
    )


def _failing(variant: Variant) -> ScriptedFailures:
    return ScriptedFailures(variant.directory, on=variant.failures)


def _pace(variant: Variant) -> Pace:
    return Pace(variant.think_ms / 1000, variant.gate if variant.gated else None)


def sink(variant: Variant) -> FileSink:
    """Make the sink."""
    if variant.parquet:
        names = OutputFileConfig.builder().with_part_suffix(".parquet").build()
        return (
            FileSink.for_bulk_format(variant.output, ParquetBulkWriters.for_row_type(STAMPED))
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
        "execution.checkpointing.unaligned.enabled": str(variant.unaligned).lower(),
        "execution.checkpointing.aligned-checkpoint-timeout": f"{variant.aligned_timeout_ms} ms",
        CHECKPOINT_HISTORY.key: "1000",
        "penstock.work-dir": str(variant.work),
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
    settings |= {f"penstock.storage.{k}": v for k, v in variant.store_options.items()}
    if variant.interval_ms is not None:
        settings["execution.checkpointing.interval"] = f"{variant.interval_ms} ms"
    if variant.records is not None:
        settings["penstock.checkpoint.records"] = str(variant.records)
    if variant.restore is not None:
        settings["execution.state-recovery.path"] = variant.restore
    return Configuration.from_dict({**settings, **variant.settings})


def fill_the_disk(script: str) -> None:
    """Let some calls of a function of `os` raise ENOSPC, from now on and in this process."""
    name, first, last, *where = script.split(":")
    real: Callable[..., Any] = getattr(os, name)
    calls, lock = [0], threading.Lock()

    def call(*args: Any, **kwargs: Any) -> Any:
        if where and where[0] not in str(Path(f"/proc/self/fd/{args[0]}").readlink()):
            return real(*args, **kwargs)
        with lock:
            calls[0] += 1
            is_full = int(first) <= calls[0] <= int(last)
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **kwargs)

    setattr(os, name, call)


def audit_pickles(path: Path) -> None:
    """Write down, at the end of this process, what pickles have loaded."""
    loaded: set[str] = set()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "pickle.find_class":
            loaded.add(f"{args[0]}.{args[1]}")

    def write() -> None:
        path.write_text(json.dumps(sorted(loaded)))

    sys.addaudithook(hook)
    # Not by atexit: a forked process does not call it.
    multiprocessing.util.Finalize(None, write, exitpriority=1)


def let_the_clock_jump(script: str) -> None:
    """Set the wall clock of this process forward or back after some time."""
    after, by = map(float, script.split(":"))
    real, began = time.time, time.monotonic()

    def jumped() -> float:
        return real() + (by if time.monotonic() - began > after else 0.0)

    time.time = jumped


def lose_micro_batches(script: str) -> None:
    """Make some micro-batches of this process fail after all their work."""
    lost, runs, run = set(map(int, script.split(","))), itertools.count(1), InlineSubmitter.run

    def lossy(self: InlineSubmitter, instructions: Any) -> Any:
        acks = run(self, instructions)
        if (number := next(runs)) in lost:
            message = f"micro-batch {number} was to be lost"
            raise MicroBatchLostError(message)
        return acks

    InlineSubmitter.run = lossy  # type: ignore[method-assign]


def die_with_records_in_flight(point: CrashPoint) -> None:
    """Die at a point after a checkpoint that holds a backlog of two inputs."""
    settle, done = InFlightDataCollector.finish_if_complete, CrashPoint.COORDINATOR_COMPLETED

    def settled(self: InFlightDataCollector) -> bool:
        is_settled = settle(self)
        inputs = list(self.wait().values()) if is_settled else []
        if len(inputs) > 1 and any(len(overtaken.entries) > 1 for overtaken in inputs):
            arm(done) if point is done else arm(done, 1, lambda: arm(point))
            InFlightDataCollector.finish_if_complete = settle  # type: ignore[method-assign]
        return is_settled

    InFlightDataCollector.finish_if_complete = settled  # type: ignore[method-assign]


def main(path: Path) -> int:
    """Run it; the exit code is 0 only if the job has finished."""
    variant = msgspec.json.decode(path.read_bytes(), type=Variant)
    if script := os.environ.get(NO_SPACE):
        fill_the_disk(script)
    if file := os.environ.get(AUDIT):
        audit_pickles(Path(file))
    if script := os.environ.get(CLOCK):
        let_the_clock_jump(script)
    if script := os.environ.get(LOSE):
        lose_micro_batches(script)
    if point := os.environ.get(DIE_IN_FLIGHT):
        die_with_records_in_flight(CrashPoint(point))
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
