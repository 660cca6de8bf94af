"""A program whose output shows every record that was lost or counted twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.checkpoint.history import History
from penstock.checkpoint.storage.job_dir import JobDir, jobs_in
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.job.launched_job import LaunchedJob
from penstock.testing import (
    Burst,
    Idle,
    ManualClock,
    Pause,
    ScriptedFailures,
    ScriptedSource,
    VerificationResult,
    compare,
    read_lines,
)
from tests.unit.support import environment, eventually

KEYS = 3
launched: list[LaunchedJob] = []
"""Jobs that a test must not leave running."""


class Count(KeyedProcessFunction[Any, int, str]):
    """Numbers the records of each key: a lost or duplicated one shows in all later ones."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{ctx.get_current_key()} {count}"


def counted(records: int) -> list[str]:
    """The output of `Count` for the numbers below `records`."""
    return [f"{n % KEYS} {n // KEYS + 1}" for n in range(records)]


def bursts(records: int, size: int = 5, pause: float = 0.004) -> list[Any]:
    """A script of numbers, some at a time."""
    script: list[Any] = []
    for start in range(0, records, size):
        script += [Burst(range(start, min(start + size, records))), Pause(pause)]
    return script


@dataclass
class Program:
    """Counts scripted numbers by key into files, below one directory."""

    root: Path
    script: Sequence[Any] = field(default_factory=lambda: bursts(100))
    fails: Sequence[int] = ()
    parallelism: int = 2
    output: str = "out"
    uid: str = "count"
    clock: ManualClock | None = None
    interval: str | None = "20 ms"
    directory: str | None = "checkpoints"
    settings: dict[str, str] = field(default_factory=dict)

    def environment(self) -> StreamExecutionEnvironment:
        checkpoints = {}
        if self.directory is not None:
            checkpoints["execution__checkpointing__dir"] = str(self.root / self.directory)
        if self.interval is not None:
            checkpoints["execution__checkpointing__interval"] = self.interval
        return environment(
            self.parallelism,
            **{
                **checkpoints,
                "restart_strategy__type": "fixed-delay",
                "restart_strategy__fixed_delay__attempts": "20",
                "restart_strategy__fixed_delay__delay": "1 ms",
                "penstock__micro_batch__max_records": "20",
                "penstock__micro_batch__initial_records": "20",
                **self.settings,
            },
        )

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        numbers = env.from_source(
            ScriptedSource(self.script, Types.LONG(), self.clock),
            WatermarkStrategy.no_watermarks(),
            "numbers",
        ).uid("numbers")
        self.count(numbers)
        return env

    def count(self, numbers: DataStream) -> None:
        (
            numbers.map(ScriptedFailures(self.root, self.fails), Types.LONG())
            .uid("failures")
            .key_by(lambda n: n % KEYS, Types.LONG())
            .process(Count())
            .uid(self.uid)
            .sink_to(self.sink())
            .uid("files")
        )

    def sink(self) -> FileSink:
        rows = FileSink.for_row_format(self.root / self.output, Encoder.simple_string_encoder())
        return rows.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()

    def run(self) -> None:
        """Run to the end."""
        self.build().execute("count")

    def launch(self) -> LaunchedJob:
        """Start without waiting."""
        job = self.build()._launch("count")
        job.result()
        launched.append(job)
        return job

    def verdict(self, records: int = 100) -> VerificationResult:
        """Verify the output."""
        return compare(counted(records), self.lines())

    def lines(self) -> list[str]:
        return read_lines(self.root / self.output)

    @property
    def dir(self) -> JobDir:
        (only,) = jobs_in(self.root / (self.directory or "checkpoints"))
        return only

    def journal(self) -> JournalState:
        return Journal(self.dir.storage, self.dir.key).state()

    def history(self) -> History:
        return History(self.dir.storage)


def idle_after(records: int) -> list[Any]:
    """A script that is idle after so many records."""
    return [*bursts(records), Idle()]


def die(job: LaunchedJob) -> None:
    """End a job as if its driver was killed: nothing is recorded or cleaned up."""
    job.suspend()
    job.kill()
    assert job.wait_for_end(20)


def checkpoint(job: LaunchedJob) -> int:
    """Take a checkpoint now."""
    return job.trigger_checkpoint().result(20).checkpoint


def wait_for_lines(program: Program, lines: int) -> None:
    """Wait until this many records are committed."""
    eventually(lambda: (program.root / program.output).exists() and len(program.lines()) >= lines)


def wait_for_records(job: LaunchedJob, records: int) -> None:
    """Wait until the keyed step has published this many records."""
    eventually(lambda: sum(r.records_in for r in job.micro_batches() if r.stage == 1) >= records)


def flip_a_byte(path: Path) -> None:
    """Damage a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
