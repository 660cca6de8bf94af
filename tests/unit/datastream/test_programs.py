"""Whole programs, run in this process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.connectors.indexed_sources import NumberSequenceSource
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.errors import InvalidJobError, JobCancelledError, UserFunctionError
from tests.unit.support import collected, environment, eventually

NO_WATERMARKS = WatermarkStrategy.no_watermarks()
SMALL = {"penstock__micro_batch__max_records": "100"}


def endless(env: StreamExecutionEnvironment) -> DataStream:
    source = DataGeneratorSource(lambda n: n, 2**62, None, Types.LONG())
    return env.from_source(source, NO_WATERMARKS, "endless")


def test_branches_do_not_see_each_others_changes() -> None:
    def append(record: list[int]) -> list[int]:
        record.append(9)
        return record

    env = environment()
    source = env.from_collection([[1], [2]])
    changed = source.map(append).map(lambda r: ("changed", r))
    same = source.map(lambda r: ("same", r))
    records = collected(changed.union(same))
    assert [r for kind, r in records if kind == "changed"] == [[1, 9], [2, 9]]
    assert [r for kind, r in records if kind == "same"] == [[1], [2]]


def test_a_record_changed_after_it_was_emitted_arrives_as_emitted() -> None:
    def grow(_: int) -> Any:
        record: list[int] = []
        for n in range(3):
            record.append(n)
            yield record

    env = environment(2)
    assert sorted(collected(env.from_collection([0]).flat_map(grow))) == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize(
    "how", ["rebalance", "rescale", "shuffle", "forward", "global_", "broadcast"]
)
def test_every_exchange_brings_every_record(how: str) -> None:
    env = environment(3, **SMALL)
    source = env.from_source(NumberSequenceSource(0, 999), NO_WATERMARKS, "numbers")
    records = collected(getattr(source, how)().map(lambda n: n))
    times = 3 if how == "broadcast" else 1
    assert sorted(records) == sorted([*range(1000)] * times)


class Order(KeyedProcessFunction[int, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_current_key(), value


def order_by_key(records: list[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for key, value in records:
        found.setdefault(key, []).append(value)
    return found


def test_records_of_a_source_partition_reach_a_key_in_order() -> None:
    env = environment(3, **SMALL)
    source = env.from_source(NumberSequenceSource(0, 999), NO_WATERMARKS, "numbers")
    seen = order_by_key(collected(source.key_by(lambda n: n % 5).process(Order())))
    assert seen == {key: list(range(key, 1000, 5)) for key in range(5)}


def test_lines_of_a_file_reach_a_key_in_order(tmp_path: Path) -> None:
    for name in "abcd":
        lines = "".join(f"{name} {n}\n" for n in range(300))
        (tmp_path / f"{name}.txt").write_text(lines)
    env = environment(3, **SMALL)
    text = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(text, str(tmp_path)).build()
    lines_of = env.from_source(source, NO_WATERMARKS, "files").map(str.split)
    seen = order_by_key(collected(lines_of.key_by(lambda r: int(r[1]) % 2).process(Order())))
    for key, values in seen.items():
        for name in "abcd":
            mine = [int(n) for file, n in values if file == name]
            assert mine == list(range(key, 300, 2))


def test_closing_the_results_cancels_the_job() -> None:
    env = environment(1, **SMALL)
    results = endless(env).execute_and_collect()
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    results.close()
    assert list(results) == []
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("stage-")])


def test_a_limit_takes_the_first_records() -> None:
    assert endless(environment(1, **SMALL)).execute_and_collect(limit=5) == [0, 1, 2, 3, 4]


def test_a_client_sees_its_job_run_and_end() -> None:
    env = environment(1, **SMALL)
    endless(env).sink_to(DiscardingSink())
    client = env.execute_async("watched")
    assert client.get_job_status().result().name == "RUNNING"
    result = client.get_job_execution_result()
    assert not result.done()
    client.cancel()
    with pytest.raises(JobCancelledError, match="'watched'"):
        result.result()
    assert client.get_job_status().result().name == "CANCELED"


def test_a_client_hands_over_the_result_or_the_failure() -> None:
    env = environment()
    env.from_collection([1]).sink_to(DiscardingSink())
    client = env.execute_async()
    assert client.get_job_execution_result().result().get_job_id() == client.get_job_id()
    assert client.get_job_status().result().name == "FINISHED"
    env.from_collection([0]).map(lambda n: 1 // n).sink_to(DiscardingSink())
    client = env.execute_async()
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        client.get_job_execution_result().result()
    assert client.get_job_status().result().name == "FAILED"


class Counts(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.odd = group.add_group("by kind").counter("odd")

    def map(self, value: int) -> int:
        self.seen.inc()
        self.odd.inc(value % 2)
        return value


def test_counters_of_all_subtasks_add_up() -> None:
    env = environment(3, **SMALL)
    source = env.from_source(NumberSequenceSource(0, 999), NO_WATERMARKS, "numbers")
    source.map(Counts()).name("count").sink_to(DiscardingSink())
    result = env.execute()
    assert result.get_all_accumulator_results() == {"count.seen": 1000, "count.by kind.odd": 500}


def test_batch_mode_refuses_a_source_that_never_ends() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/tmp")
    watching = source.monitor_continuously(Duration.of_seconds(1)).build()
    env.from_source(watching, NO_WATERMARKS, "files").print()
    with pytest.raises(InvalidJobError, match=r"bounded sources, but 'Source: files' is unbounded"):
        env.execute()


def test_a_function_knows_where_it_runs() -> None:
    class Where(MapFunction[int, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.where = (
                runtime_context.get_task_name(),
                runtime_context.get_index_of_this_subtask(),
                runtime_context.get_number_of_parallel_subtasks(),
                runtime_context.get_max_number_of_parallel_subtasks(),
                runtime_context.get_attempt_number(),
                runtime_context.get_job_parameter("pipeline.name", ""),
            )

        def map(self, value: int) -> Any:
            return self.where

    env = environment(2, pipeline__name="mine")
    stream = env.from_collection([1, 2]).rebalance().map(Where()).name("where")
    assert sorted(collected(stream)) == [("where", i, 2, 128, 0, "mine") for i in range(2)]


def test_collected_values_have_the_form_of_their_type() -> None:
    env = environment()
    people = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.DOUBLE()])
    (row,) = collected(env.from_collection([1]).map(lambda n: ("Ada", n), people))
    assert row == Row(name="Ada", age=1.0)


def test_what_a_keyed_step_makes_goes_to_all_its_branches() -> None:
    env = environment(2)
    sums = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda r: r[0]).sum(1)
    records = collected(sums.map(lambda r: ("left", *r)).union(sums.map(lambda r: ("right", *r))))
    assert sorted(records) == [
        ("left", "a", 1),
        ("left", "a", 3),
        ("right", "a", 1),
        ("right", "a", 3),
    ]
