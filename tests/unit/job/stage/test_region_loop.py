"""The region loops of a job, run in this process."""

from __future__ import annotations

import logging
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.connectors.indexed_sources import NumberSequenceSource
from penstock.connectors.socket.ingestion_log import IngestionLog
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import MicroBatchFailedError, SocketConnectionError
from penstock.job.submitter import MicroBatchLostError
from penstock.task.messages import Acknowledgement, Instruction
from penstock.testing import Burst, Pause, ScriptedSource
from tests.unit.support import WatchedSubmitter, collected, environment, eventually

SMALL = {"penstock__micro_batch__max_records": "10", "penstock__micro_batch__initial_records": "10"}


def numbers(env: StreamExecutionEnvironment, end: int) -> DataStream:
    source = NumberSequenceSource(0, end - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


class Count(KeyedProcessFunction[Any, int, Any]):
    """Counts per key, and gives each record a random number that state stores."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.DOUBLE()))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: int, ctx: Any) -> Any:
        self.seen.inc()
        before, drawn = self.last.value(), random.random()
        self.last.update(drawn)
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value(), before, drawn


class Lossy(WatchedSubmitter):
    """Loses the first tries of every micro-batch after their tasks staged everything."""

    def __init__(self, losses: int) -> None:
        super().__init__()
        self._losses = losses

    def after(self, instruction: Instruction) -> None:
        if instruction.try_number < self._losses:
            message = "the executor is gone"
            raise MicroBatchLostError(message)


@pytest.mark.parametrize("losses", [0, 2])
def test_output_state_and_counters_come_from_one_execution(losses: int) -> None:
    lossy = Lossy(losses)
    env = lossy.watch(environment(2, **SMALL))
    counted = numbers(env, 50).key_by(lambda n: n % 3).process(Count()).name("count")
    records: list[Any] = []
    with counted.execute_and_collect() as results:
        records += results
    for key in range(3):
        mine = [r for r in records if r[0] == key]
        assert [r[1] for r in mine] == list(range(1, len(mine) + 1))
        assert [r[2] for r in mine[1:]] == [r[3] for r in mine[:-1]]
    assert len(records) == 50
    assert max(i.try_number for i in lossy.instructions) == losses


def test_counters_count_only_what_was_published() -> None:
    env = Lossy(1).watch(environment(2, **SMALL))
    numbers(env, 50).key_by(str).process(Count()).name("count").sink_to(DiscardingSink())
    assert env.execute().get_accumulator_result("count.seen") == 50


def test_a_micro_batch_lost_too_often_fails_the_job() -> None:
    env = Lossy(9).watch(environment(1, penstock__micro_batch__max_tries="2"))
    numbers(env, 5).name("five").sink_to(DiscardingSink())
    with pytest.raises(MicroBatchFailedError) as caught:
        env.execute()
    assert str(caught.value) == (
        "stage 'five -> Sink: DiscardingSink': micro-batch 1 failed in all 2 tries; "
        "look into the logs of Spark's executors; the last error: the executor is gone"
    )


class Late(WatchedSubmitter):
    """Delays micro-batches by stage, before very short tasks; records when they ran."""

    def __init__(self, seconds: dict[int, float]) -> None:
        super().__init__()
        self._seconds = seconds
        self.ran: list[tuple[int, float, float]] = []

    def before(self, instruction: Instruction) -> None:
        began = time.monotonic()
        time.sleep(self._seconds[instruction.stage])
        self.ran.append((instruction.stage, began, time.monotonic()))

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        acks = super().run(instructions)
        return [[replace(a, phases={"process": 0.0001}) for a in of_one] for of_one in acks]


def drops(env: StreamExecutionEnvironment, count: int) -> DataStream:
    """One record at a time, the next one with the next poll."""
    script = [step for n in range(count) for step in (Burst([n]), Pause(0.001))]
    source = ScriptedSource(script, Types.LONG())
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "drops")


def overlaps(ran: list[tuple[int, float, float]], stage: int, other: int) -> list[bool]:
    """Whether each micro-batch of a stage started while one of another was running."""
    others = [(began, ended) for s, began, ended in ran if s == other]
    return [any(low < began < high for low, high in others) for s, began, _ in ran if s == stage]


def test_light_micro_batches_wait_for_the_ones_before_them() -> None:
    late = Late({0: 0.04, 1: 0.04})
    env = late.watch(environment(1))
    drops(env, 30).rebalance().sink_to(DiscardingSink())
    env.execute()
    beside = overlaps(late.ran, 0, 1)
    assert len(beside) == 30
    assert beside.count(True) < 10


def test_a_fast_consumer_does_not_wait_for_a_slow_one() -> None:
    late = Late({0: 0.01, 1: 0.01, 2: 0.4})
    env = late.watch(environment(1))
    source = drops(env, 60)
    source.rebalance().map(str).name("fast").sink_to(DiscardingSink())
    source.rebalance().map(str).name("slow").sink_to(DiscardingSink())
    env.execute()
    slow = [(began, ended) for stage, began, ended in late.ran if stage == 2]
    # By now its micro-batches are known to be light.
    beside = [b for s, b, _ in late.ran if s == 1 and slow[1][0] < b < slow[1][1]]
    assert len(beside) > 2


def test_a_full_channel_blocks_its_producer() -> None:
    blocking, go = threading.Event(), threading.Event()

    class BlockedInput(WatchedSubmitter):
        def before(self, instruction: Instruction) -> None:
            if instruction.stage == 1:
                blocking.set()
                go.wait(5)

    submitter = BlockedInput()
    env = submitter.watch(environment(1, penstock__channel__max_records="10", **SMALL))
    numbers(env, 40).rebalance().sink_to(DiscardingSink())
    client = env.execute_async()
    assert blocking.wait(5)
    time.sleep(0.05)
    assert submitter.stages() == [0, 1]
    go.set()
    client.get_job_execution_result().result()
    assert sorted(submitter.stages()) == [0] * 4 + [1] * 4


def test_batch_mode_ends_though_its_input_is_larger_than_a_channel() -> None:
    env = environment(1, penstock__channel__max_records="10", **SMALL)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    sums = numbers(env, 100).map(lambda n: (n % 2, n)).key_by(lambda r: r[0]).sum(1)
    assert sorted(collected(sums)) == [(0, 2450), (1, 2500)]


def test_an_idle_job_submits_nothing(tmp_path: Path) -> None:
    submitter = WatchedSubmitter()
    env = submitter.watch(environment(1, penstock__source__poll_interval="10 ms"))
    watching = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    source = watching.monitor_continuously(Duration.of_millis(10)).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    stream.sink_to(DiscardingSink())
    client = env.execute_async()
    time.sleep(0.1)
    assert submitter.instructions == []
    (tmp_path / "a.txt").write_text("a\n")
    eventually(lambda: len(submitter.acknowledgements) == 1)
    time.sleep(0.1)
    assert len(submitter.instructions) == 1
    client.cancel()


class Remembers(MapFunction[int, int]):
    opened = 0
    closed = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        Remembers.opened += 1
        self.calls = 0

    def map(self, value: int) -> int:
        self.calls += 1
        return self.calls

    def close(self) -> None:
        Remembers.closed += 1


@pytest.fixture
def remembers() -> type[Remembers]:
    Remembers.opened = Remembers.closed = 0
    return Remembers


def test_a_function_is_reused_while_its_worker_ran_the_last_winner(
    remembers: type[Remembers],
) -> None:
    env = WatchedSubmitter().watch(environment(1, **SMALL))
    assert collected(numbers(env, 30).map(remembers())) == list(range(1, 31))
    assert (remembers.opened, remembers.closed) == (1, 1)


def test_a_function_of_a_lost_try_is_not_reused(remembers: type[Remembers]) -> None:
    env = Lossy(1).watch(environment(1, **SMALL))
    assert collected(numbers(env, 30).map(remembers())) == list(range(1, 11)) * 3
    assert remembers.opened == 4


def test_two_jobs_in_one_process_do_not_reuse_each_others_functions() -> None:
    turns = [("first", 1), ("second", 1), ("first", 2), ("second", 2)]
    ran = {turn: threading.Event() for turn in turns}

    class InTurn(WatchedSubmitter):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def before(self, instruction: Instruction) -> None:
            if (turn := (self.name, instruction.batch)) in turns[1:]:
                assert ran[turns[turns.index(turn) - 1]].wait(5)

        def after(self, instruction: Instruction) -> None:
            ran.setdefault((self.name, instruction.batch), threading.Event()).set()

    one = InTurn("first").watch(environment(1, **SMALL))
    other = InTurn("second").watch(environment(1, **SMALL))
    with (
        numbers(one, 30).map(lambda n: "first").execute_and_collect() as firsts,
        numbers(other, 30).map(lambda n: "second").execute_and_collect() as seconds,
    ):
        assert (list(firsts), list(seconds)) == (["first"] * 30, ["second"] * 30)


def test_a_function_that_changes_its_fields_causes_one_warning(
    remembers: type[Remembers], caplog: pytest.LogCaptureFixture
) -> None:
    env = environment(1, **SMALL)
    with caplog.at_level(logging.WARNING, "penstock"):
        collected(numbers(env, 30).map(remembers()).name("counts"))
    (warning,) = caplog.messages
    assert "Step 'counts' changed its fields calls" in warning


class Keeps(MapFunction[int, int]):
    def __init__(self, factor: int) -> None:
        self.factors = [factor]

    def map(self, value: int) -> int:
        return value * self.factors[0]


def test_functions_that_change_nothing_cause_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = environment()
    assert collected(numbers(env, 3).map(Keeps(2)).map(Keeps(3))) == [0, 6, 12]
    assert caplog.messages == []


def test_functions_are_closed_at_the_end_of_an_input_that_ends_empty(
    remembers: type[Remembers],
) -> None:
    env = environment(2)
    stream = numbers(env, 4).rebalance().filter(bool).map(remembers())
    assert len(collected(stream)) == 3
    assert remembers.closed == remembers.opened == 2


def test_batch_mode_finishes_its_keys_in_several_slices() -> None:
    submitter = WatchedSubmitter()
    env = submitter.watch(environment(2, **SMALL)).set_runtime_mode(RuntimeExecutionMode.BATCH)
    pairs = numbers(env, 100).map(lambda n: (f"k{n % 20}", 1))
    sums = collected(pairs.key_by(lambda r: r[0]).sum(1))
    assert sorted(sums) == sorted((f"k{n}", 5) for n in range(20))
    slices = [i.key_slice for i in submitter.instructions if i.key_slice is not None]
    assert slices == [(n, 10) for n in range(10)]


def test_results_stay_right_when_deltas_are_compacted() -> None:
    submitter = WatchedSubmitter()
    env = submitter.watch(environment(1, penstock__state__compact_after_deltas="2", **SMALL))
    counted = collected(numbers(env, 200).key_by(lambda n: n % 7).process(Count()))
    assert submitter.purposes.count("compact") > 1
    last = {key: count for key, count, _, _ in counted}
    assert last == {key: len(range(key, 200, 7)) for key in range(7)}


def test_staged_sink_output_is_removed_once_it_is_published(tmp_path: Path) -> None:
    class Looks(WatchedSubmitter):
        def before(self, instruction: Instruction) -> None:
            left.extend(tmp_path.rglob("staging/*/*"))

        def after(self, instruction: Instruction) -> None:
            staged.extend(tmp_path.rglob("staging/*/*"))

    left: list[Path] = []
    staged: list[Path] = []
    env = Looks().watch(environment(1, penstock__work_dir=str(tmp_path), **SMALL))
    assert len(collected(numbers(env, 30).map(lambda n: "x" * 100_000))) == 30
    assert (len(staged), left) == (3, [])


class Broken(DiscardingSink):
    def publisher(self, context: Any) -> Any:
        message = "no such table"
        raise OSError(message)


def test_a_job_that_cannot_start_closes_what_it_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(
        "penstock.job.input.source_input.SourceInput.close", lambda self: closed.append(True)
    )
    env = environment()
    numbers(env, 3).sink_to(Broken())
    with pytest.raises(OSError, match="no such table"):
        env.execute()
    assert closed == [True]


def test_a_killed_job_ends_cancelled() -> None:
    began, go = threading.Event(), threading.Event()

    class Stuck(WatchedSubmitter):
        def before(self, instruction: Instruction) -> None:
            began.set()
            go.wait(5)
            message = "killed"
            raise MicroBatchLostError(message)

        def cancel(self) -> None:
            go.set()

    env = Stuck().watch(environment())
    numbers(env, 3).sink_to(DiscardingSink())
    job = env._launch("stuck")
    assert began.wait(5)
    job.kill()
    eventually(lambda: job.result().done())
    assert job.status().name == "CANCELED"


def test_a_source_that_cannot_start_closes_its_log(tmp_path: Path) -> None:
    env = environment(1, penstock__ingestion__dir=str(tmp_path))
    env.socket_text_stream("localhost", 9).uid("lines").print()
    with pytest.raises(SocketConnectionError) as still_held:
        env.execute()
    assert still_held.value is not None
    IngestionLog(tmp_path / "lines" / "ingestion-log").close()
