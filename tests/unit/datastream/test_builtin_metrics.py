"""Built-in metrics: how many records each operator took and emitted, exactly, however it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Types
from penstock.common.event_time import MAX_WATERMARK
from penstock.common.live_figures import LiveFigures
from penstock.common.serialization import Encoder
from penstock.common.time import Time
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BatchFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.state import ValueStateDescriptor
from penstock.job.submitter import MicroBatchLostError
from penstock.task.messages import Instruction
from tests.unit.support import WatchedSubmitter, environment

RECORDS = 20


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(range(RECORDS), Types.LONG()).name("numbers").uid("numbers")


def finished(env: StreamExecutionEnvironment) -> LiveFigures:
    client = env.execute_async("job")
    client.get_job_execution_result().result()
    return client.get_live_figures()


def counts(figures: LiveFigures) -> dict[str, tuple[float, float]]:
    """Return the records in and out of each operator, by name."""
    return {
        operator.name: (
            sum(m["numRecordsIn"] for m in operator.subtasks.values()),
            sum(m["numRecordsOut"] for m in operator.subtasks.values()),
        )
        for stage in figures.stages
        for operator in stage.operators
    }


def twice(number: int) -> list[int]:
    return [number, number]


def is_even(number: int) -> bool:
    return number % 2 == 0


class Keyed(KeyedProcessFunction[int, int, int]):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        yield value
        if value % 4 == 0:
            yield value


def test_every_operator_of_a_chain_counts_what_it_takes_and_emits() -> None:
    env = environment(parallelism=2)
    stream = numbers(env).flat_map(twice, Types.LONG()).name("twice")
    stream = stream.filter(is_even).name("even").map(lambda n: n, Types.LONG()).name("same")
    stream = stream.key_by(lambda n: n, Types.LONG()).process(Keyed(), Types.LONG()).name("keyed")
    stream.filter(is_even).name("even again").sink_to(DiscardingSink()).name("sink")
    assert counts(finished(env)) == {
        "numbers": (20, 20),
        "twice": (20, 40),
        "even": (40, 20),
        "same": (20, 20),
        "keyed": (20, 30),
        "even again": (30, 30),
        "sink": (30, 0),
    }


def test_side_outputs_and_branches_count_each_record_once() -> None:
    tag = OutputTag("odd", Types.LONG())

    class Split(ProcessFunction[int, int]):
        def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
            yield value if value % 2 == 0 else (tag, value)

    env = environment()
    split = numbers(env).process(Split(), Types.LONG()).name("split")
    split.map(lambda n: n, Types.LONG()).name("a").sink_to(DiscardingSink()).name("sink a")
    split.rebalance().filter(lambda n: n > 4).name("b").sink_to(DiscardingSink()).name("sink b")
    odd = split.get_side_output(tag)
    odd.flat_map(twice, Types.LONG()).name("c").sink_to(DiscardingSink()).name("sink c")
    assert counts(finished(env)) == {
        "numbers": (20, 20),
        "split": (20, 20),
        "a": (10, 10),
        "sink a": (10, 0),
        "b": (10, 7),
        "sink b": (7, 0),
        "c": (10, 20),
        "sink c": (20, 0),
    }


class Half(BatchFunction):
    def process_batch(
        self, batch: pa.RecordBatch, ctx: BatchFunction.Context
    ) -> Iterable[pa.RecordBatch]:
        yield batch.slice(0, batch.num_rows // 2)


def test_batches_and_files_are_counted_by_their_rows(tmp_path: Path) -> None:
    env = environment()
    stream = numbers(env).map(lambda n: n, Types.LONG()).name("same")
    stream = stream.process_batch(Half(), Types.LONG()).name("half")
    stream = stream.process_batch(Half(), Types.LONG()).name("quarter")
    text = stream.map(str, Types.STRING()).name("text")
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    text.sink_to(sink).name("sink")
    assert counts(finished(env)) == {
        "numbers": (20, 20),
        "same": (20, 20),
        "half": (20, 10),
        "quarter": (10, 5),
        "text": (5, 5),
        "sink": (5, 0),
    }


class Asked(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return [value] * (value % 3)


def test_asynchronous_steps_are_counted() -> None:
    env = environment()
    stream = AsyncDataStream.unordered_wait(
        numbers(env), Asked(), Time.seconds(5), 10, Types.LONG()
    ).name("asked")
    stream.filter(is_even).name("even").sink_to(DiscardingSink()).name("sink")
    expected = sum(n % 3 for n in range(RECORDS))
    even = sum(n % 3 for n in range(0, RECORDS, 2))
    assert counts(finished(env)) == {
        "numbers": (20, 20),
        "asked": (20, expected),
        "even": (expected, even),
        "sink": (even, 0),
    }


class LosesFirstTries(WatchedSubmitter):
    def after(self, instruction: Instruction) -> None:
        if instruction.try_number == 0:
            message = "lost"
            raise MicroBatchLostError(message)


def test_a_micro_batch_that_runs_again_counts_once() -> None:
    watched = LosesFirstTries()
    env = watched.watch(environment(parallelism=2))
    stream = numbers(env).key_by(lambda n: n, Types.LONG()).process(Keyed(), Types.LONG())
    stream.name("keyed").sink_to(DiscardingSink()).name("sink")
    figures = finished(env)
    assert any(i.try_number == 1 for i in watched.instructions)
    assert counts(figures)["keyed"] == (20, 25)
    source, keyed = figures.stages
    read, written = (
        sum(s.metrics[name] for s in stage.subtasks)
        for stage, name in ((keyed, "numBytesIn"), (source, "numBytesOut"))
    )
    assert read == written > 0
    assert [
        sum(s.metrics["numRecordsOut"] for s in stage.subtasks) for stage in figures.stages
    ] == [20, 0]


@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
def test_bytes_out_of_a_stage_are_bytes_into_the_next(exchange: str) -> None:
    env = environment(parallelism=2, **{"penstock.exchange": exchange})
    stream = numbers(env).rebalance().map(lambda n: n, Types.LONG()).name("same")
    stream.sink_to(DiscardingSink())
    source, same = finished(env).stages
    written = sum(s.metrics["numBytesOut"] for s in source.subtasks)
    assert sum(s.metrics["numBytesIn"] for s in same.subtasks) == written > 0


def test_times_of_a_subtask_sum_to_a_second_per_second() -> None:
    env = environment(parallelism=2)
    numbers(env).rebalance().map(lambda n: n, Types.LONG()).sink_to(DiscardingSink())
    for stage in finished(env).stages:
        for subtask in stage.subtasks:
            times = [
                subtask.metrics[f"{kind}TimeMsPerSecond"]
                for kind in ("busy", "backPressured", "idle")
            ]
            assert min(times) >= 0
            assert sum(times) == pytest.approx(1000)
            assert subtask.metrics["accumulateBusyTimeMs"] > 0


def test_watermarks_and_lag_are_those_of_event_time() -> None:
    env = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Time())
    stream = numbers(env).assign_timestamps_and_watermarks(strategy).name("timed")
    stream.map(lambda n: n, Types.LONG()).name("same").sink_to(DiscardingSink())
    figures = finished(env)
    (stage,) = figures.stages
    (source, *others) = stage.operators
    lag = source.subtasks[0]["currentEmitEventTimeLag"]
    assert figures.time * 1000 - lag == pytest.approx(1000 * (RECORDS - 1), abs=60_000)
    # After the end of input.
    assert {o.subtasks[0]["currentOutputWatermark"] for o in others} == {2**63 - 1}


class _Time(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * 1000


def test_without_event_time_there_are_no_watermarks_before_the_end() -> None:
    env = environment()
    numbers(env).filter(is_even).sink_to(DiscardingSink())
    client = env.execute_async("job")
    client.get_job_execution_result().result()
    times = [m for m in client.get_metrics(builtin=True) if m.name.endswith(("atermark", "Lag"))]
    assert {value for m in times for value in m.subtasks.values()} <= {MAX_WATERMARK}


def rocksdb_metrics(**settings: str) -> dict[int, dict[str, float]]:
    keys = {f"state.backend.rocksdb.metrics.{k.replace('_', '-')}": v for k, v in settings.items()}
    initial = {"penstock.micro-batch.initial-records": "5", "penstock.micro-batch.max-records": "5"}
    env = environment(2, **{"state.backend.type": "rocksdb"}, **initial, **keys)
    stream = numbers(env).key_by(lambda n: n, Types.LONG()).process(Remember(), Types.LONG())
    stream.sink_to(DiscardingSink())
    keyed = finished(env).stages[1].operators[0]
    assert all(metrics["stateSize"] > 0 for metrics in keyed.subtasks.values())
    return {
        i: {name: value for name, value in metrics.items() if "rocksdb" in name}
        for i, metrics in keyed.subtasks.items()
    }


class Remember(KeyedProcessFunction[int, int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.seen.update(value)
        yield value


def test_rocksdb_tells_its_properties_by_state_if_they_are_enabled() -> None:
    assert rocksdb_metrics() == {0: {}, 1: {}}
    found = rocksdb_metrics(estimate_num_keys="true", total_sst_files_size="true")
    names = {"seen.rocksdb.estimate-num-keys", "seen.rocksdb.total-sst-files-size"}
    assert [metrics.keys() for metrics in found.values()] == [names, names]
    # Those of the last micro-batch are not in the database yet.
    keys = sum(metrics["seen.rocksdb.estimate-num-keys"] for metrics in found.values())
    assert RECORDS - 10 <= keys <= RECORDS
    assert all(metrics["seen.rocksdb.total-sst-files-size"] > 0 for metrics in found.values())
