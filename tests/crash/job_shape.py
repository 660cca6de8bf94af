"""How much of a job of windows, timers and rules there is, what it reads and where it writes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.common import Configuration, Duration, Encoder, Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.testing import run_inline
from tests.unit.datastream.windowed_program import DISORDER, TimeOf

JOB = "timely"


class Shape(msgspec.Struct, frozen=True):
    """The parts of the job, how much comes, how fast it comes, and where it runs."""

    directory: str
    parts: tuple[str, ...]
    records: int
    per_second: float
    spark: bool = False
    interval_ms: int = 30
    backend: str = "hashmap"

    @property
    def output(self) -> Path:
        return Path(self.directory) / "out"

    @property
    def checkpoints(self) -> Path:
        return Path(self.directory) / "checkpoints"


def environment(shape: Shape) -> StreamExecutionEnvironment:
    settings = {
        "penstock.job-id": JOB,
        "execution.checkpointing.dir": str(shape.checkpoints),
        "execution.checkpointing.interval": f"{shape.interval_ms} ms",
        "penstock.work-dir": str(Path(shape.directory) / "work"),
        "penstock.state.local-dir": str(Path(shape.directory) / "local"),
        "penstock.source.poll-interval": "10 ms",
        "state.backend.type": shape.backend,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "spark.master": "local[2]",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    return env if shape.spark else run_inline(env)


def numbers(
    env: StreamExecutionEnvironment,
    name: str,
    count: int,
    per_second: float,
    strategy: WatermarkStrategy | None = None,
) -> DataStream:
    """The numbers below a count, at a pace."""
    pace = RateLimiterStrategy.per_second(per_second)
    source = DataGeneratorSource(int, count, pace, Types.LONG())
    return env.from_source(source, strategy or WatermarkStrategy.no_watermarks(), name).uid(name)


def timed(disorder: int = DISORDER) -> WatermarkStrategy:
    """The times of numbers; with less than the whole disorder some of them are late."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(disorder))
    return strategy.with_timestamp_assigner(TimeOf())


def files(shape: Shape) -> FileSink:
    rows = FileSink.for_row_format(str(shape.output), Encoder.simple_string_encoder())
    return rows.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
