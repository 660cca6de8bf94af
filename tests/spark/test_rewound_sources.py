"""Jobs whose source was set to other positions have event time from the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.spark.session import open_session
from penstock.spark.state import SavepointWriter
from penstock.testing import Burst, Idle, ScriptedSource, run_inline
from tests.unit.job.counting import launched, wait_for_records

pytestmark = pytest.mark.spark

LAST = 50
SIZE = 10


class _Number(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def numbers_in_windows(
    env: StreamExecutionEnvironment, source: ScriptedSource, *, in_source: bool
) -> DataStream:
    """Return the sum of each window; the watermarks come from the source or a step after it."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Number())
    none = WatermarkStrategy.no_watermarks()
    numbers = env.from_source(source, strategy if in_source else none, "numbers").uid("numbers")
    if not in_source:
        numbers = numbers.rebalance().assign_timestamps_and_watermarks(strategy).uid("timed")
    windows = numbers.key_by(lambda _: 0, Types.LONG()).window(TumblingEventTimeWindows(SIZE, 0))
    return windows.reduce(lambda a, b: a + b).uid("windows")


def environment(**settings: str) -> StreamExecutionEnvironment:
    settings["penstock.micro-batch.max-records"] = "5"
    configuration = Configuration.from_dict(settings)
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    return env.set_parallelism(1)


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("in_source", [True, False])
def test_records_that_are_read_again_are_not_late(
    spark: SparkSession, tmp_path: Path, drain: bool, in_source: bool
) -> None:
    env = environment(**{"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    endless = ScriptedSource([Burst(range(LAST)), Idle()], Types.LONG())
    numbers_in_windows(env, endless, in_source=in_source).sink_to(DiscardingSink())
    job = env._launch("windows")
    job.result()
    launched.append(job)
    wait_for_records(job, LAST)
    savepoint = job.stop(str(tmp_path / "savepoints"), drain=drain).result(20)
    assert job.wait_for_end(20)

    with SavepointWriter.from_existing_savepoint(spark, savepoint) as writer:
        writer.with_source_positions("numbers", {"0": 2 * SIZE})
        # The window that had not fired gets all of its records again.
        writer.drop_state("windows", "window-contents")
        rewound = writer.write(tmp_path / "rewound")
    again = environment(**{"execution.state-recovery.path": rewound})
    bounded = ScriptedSource([Burst(range(LAST))], Types.LONG())
    with numbers_in_windows(again, bounded, in_source=in_source).execute_and_collect() as found:
        sums = sorted(found)
    starts = range(2 * SIZE, LAST, SIZE)
    assert sums == [sum(range(start, start + SIZE)) for start in starts]
