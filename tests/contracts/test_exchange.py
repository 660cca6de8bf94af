"""The output of a program does not depend on the exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.connectors.indexed_sources import NumberSequenceSource
from penstock.datastream import (
    CheckpointListener,
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import UserFunctionError
from penstock.job.submitter import MicroBatchLostError
from penstock.task.messages import Instruction
from penstock.task.partitioning import partitioners as emit
from penstock.task.shuffle import records as shuffle_records
from penstock.testing import Burst, ManualClock, Pause
from tests.unit.job.counting import (
    Program,
    bursts,
    checkpoint,
    die,
    idle_after,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.support import WatchedSubmitter, collected, environment

CHANNEL, SHUFFLE = "channel", "shuffle"
SMALL = {
    "penstock__micro_batch__max_records": "10",
    "penstock__micro_batch__initial_records": "10",
}


@pytest.fixture(params=[CHANNEL, SHUFFLE])
def exchange(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def made(exchange: str, parallelism: int = 2) -> StreamExecutionEnvironment:
    return environment(parallelism, penstock__exchange=exchange, **SMALL)


def numbers(env: StreamExecutionEnvironment, count: int, start: int = 0) -> DataStream:
    source = NumberSequenceSource(start, start + count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), f"from {start}")


class Numbered(KeyedProcessFunction[Any, Any, Any]):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), value, count


class Marked(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return (1, value)

    def map2(self, value: Any) -> Any:
        return (2, value)


def one(value: Any) -> Any:
    return value


# -- what comes out -------------------------------------------------------------------------------


def test_records_are_counted_by_key(exchange: str) -> None:
    env = made(exchange)
    counted = numbers(env, 50).map(lambda n: n + 1).key_by(lambda n: n % 3).process(Numbered())
    results = collected(counted)
    assert sorted(value for _, value, _ in results) == list(range(1, 51))
    for key in range(3):
        mine = [count for k, _, count in results if k == key]
        assert sorted(mine) == list(range(1, len(mine) + 1))


def test_a_second_key_follows_a_first(exchange: str) -> None:
    env = made(exchange)
    first = numbers(env, 60).key_by(lambda n: n % 6).process(Numbered())
    second = first.key_by(lambda record: record[0] % 2).process(Numbered())
    results = collected(second)
    assert Counter(key for key, _, _ in results) == {0: 30, 1: 30}
    assert {record[:2] for _, record, _ in results} == {(n % 6, n) for n in range(60)}
    assert sorted(count for key, _, count in results if key == 1) == list(range(1, 31))


def test_both_branches_of_a_diamond_are_joined(exchange: str) -> None:
    env = made(exchange)
    source = numbers(env, 30)
    longer = source.key_by(lambda n: n % 4).process(Numbered()).map(lambda r: ("far", r[1]))
    shorter = source.map(lambda n: ("near", n))
    results = collected(longer.union(shorter).rebalance().map(one))
    assert Counter(results) == Counter((way, n) for way in ("far", "near") for n in range(30))


def test_records_that_skip_a_level_arrive_in_the_same_micro_batch(exchange: str) -> None:
    """Two levels are between the source and the last step, which it feeds directly too."""
    env = made(exchange)
    source = numbers(env, 20)
    far = source.rebalance().map(one).set_parallelism(3).rebalance().map(one).set_parallelism(1)
    both = far.union(source.rescale()).key_by(lambda n: n).process(Numbered()).set_parallelism(3)
    assert Counter(count for _, _, count in collected(both)) == {1: 20, 2: 20}


def test_two_sources_meet_in_a_union(exchange: str) -> None:
    env = made(exchange)
    left = numbers(env, 25).key_by(lambda n: n % 2).process(Numbered()).map(lambda r: r[1])
    both = left.union(numbers(env, 25, start=100)).key_by(lambda n: n % 5).process(Numbered())
    results = collected(both)
    assert sorted(value for _, value, _ in results) == [*range(25), *range(100, 125)]


def test_connected_streams_are_distinguished(exchange: str) -> None:
    env = made(exchange)
    source = numbers(env, 20)
    branches = source.map(lambda n: n).rebalance(), source.key_by(lambda n: n % 3).map(lambda n: -n)
    results = collected(branches[0].connect(branches[1]).map(Marked()))
    expected = [*((1, n) for n in range(20)), *((2, -n) for n in range(20))]
    assert Counter(results) == Counter(expected)


def test_two_branches_end_in_two_sinks(exchange: str) -> None:
    env = made(exchange)
    source = numbers(env, 20)
    source.rebalance().map(one).sink_to(DiscardingSink())
    assert sorted(collected(source.key_by(one).map(one))) == list(range(20))


@pytest.mark.parametrize("how", ["rebalance", "rescale", "shuffle", "global_", "forward"])
def test_each_record_is_distributed_once(exchange: str, how: str) -> None:
    env = made(exchange)
    distributed = getattr(numbers(env, 40), how)()
    assert sorted(collected(distributed.map(one).start_new_chain())) == list(range(40))


def test_a_broadcast_reaches_every_subtask(exchange: str) -> None:
    env = made(exchange)
    results = collected(numbers(env, 20).broadcast().map(one).set_parallelism(3))
    assert Counter(results) == Counter(dict.fromkeys(range(20), 3))


def test_a_decoupled_step_gets_all_in_order(exchange: str) -> None:
    env = made(exchange, 1)
    assert collected(numbers(env, 40).rebalance().map(one).decouple().map(one)) == list(range(40))


def test_a_batch_job_emits_its_final_results(exchange: str) -> None:
    env = made(exchange).set_runtime_mode(RuntimeExecutionMode.BATCH)
    summed = numbers(env, 40).key_by(lambda n: n % 2).reduce(lambda a, b: a + b)
    assert sorted(collected(summed)) == [sum(range(0, 40, 2)), sum(range(1, 40, 2))]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_records_of_a_key_stay_in_order(
    exchange: str, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each subtask gets many slices, some in several pieces, in the wrong order."""
    monkeypatch.setattr(emit, "CHUNK", 7)
    monkeypatch.setattr(shuffle_records, "MAX_RECORD_BYTES", 64)
    monkeypatch.setattr(shuffle_records, "MAX_MEMORY_BYTES", 1000)
    env = environment(parallelism, penstock__exchange=exchange)
    # A source with one subtask has one order, which everything downstream has to keep.
    source = numbers(env, 400).set_parallelism(1)
    twice = source.key_by(lambda n: n % 5).map(one).key_by(lambda n: n % 5).process(Numbered())
    results = collected(twice)
    for key in range(5):
        mine = sorted((value, count) for k, value, count in results if k == key)
        assert [count for _, count in mine] == list(range(1, 81))


# -- how it is run --------------------------------------------------------------------------------


def test_stages_that_go_together_are_at_the_same_micro_batch() -> None:
    watched = WatchedSubmitter()
    env = watched.watch(made(SHUFFLE))
    numbers(env, 30).key_by(one).map(one).rebalance().map(one).sink_to(DiscardingSink())
    env.execute("numbers")
    stages = watched.stages()
    assert stages == [0, 1, 2] * (len(stages) // 3)
    assert len({i.batch for i in watched.instructions}) == len(stages) // 3 >= 3
    assert all(len(acks) == 2 for acks in watched.acknowledgements)
    assert all(not ack.outputs for acks in watched.acknowledgements for ack in acks)


class Lossy(WatchedSubmitter):
    """Fails the first try of every micro-batch after its tasks have staged everything."""

    def after(self, instruction: Instruction) -> None:
        if instruction.try_number == 0:
            message = "the executor is gone"
            raise MicroBatchLostError(message)


def test_a_lost_try_counts_in_no_stage(exchange: str) -> None:
    env = Lossy().watch(made(exchange))
    first = numbers(env, 40).key_by(lambda n: n % 4).process(Numbered())
    results = collected(first.key_by(lambda r: r[0]).process(Numbered()))
    for key in range(4):
        mine = [(record[2], count) for k, record, count in results if k == key]
        assert sorted(mine) == [(n, n) for n in range(1, 11)]


class Ran(MapFunction[Any, Any]):
    """Remembers that it ran."""

    seen: ClassVar[list[Any]] = []

    def map(self, value: Any) -> Any:
        Ran.seen.append(value)
        return value


def test_steps_downstream_of_a_failed_step_do_not_run() -> None:
    Ran.seen.clear()
    env = made(SHUFFLE)
    broken = numbers(env, 9).rebalance().map(lambda n: 1 // n).name("divide")
    broken.broadcast().map(one).rebalance().map(Ran()).sink_to(DiscardingSink())
    with pytest.raises(UserFunctionError) as caught:
        env.execute("numbers")
    assert caught.value.step == "divide"
    assert "ZeroDivisionError" in str(caught.value)
    assert Ran.seen == []


class Notified(MapFunction[Any, Any], CheckpointListener):
    """Records notifications of checkpoints, and that it was closed."""

    heard: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, name: str) -> None:
        self._name = name

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        Notified.heard.append((f"{self._name} closed", 0))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        Notified.heard.append((self._name, checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        pass


def test_functions_of_all_stages_hear_of_the_last_checkpoint_and_are_closed(
    exchange: str, tmp_path: Path
) -> None:
    Notified.heard.clear()
    env = environment(
        1,
        penstock__exchange=exchange,
        execution__checkpointing__dir=str(tmp_path),
        execution__checkpointing__interval="1 h",
    )
    notified = numbers(env, 20).map(Notified("first")).rebalance().map(Notified("second"))
    notified.sink_to(DiscardingSink())
    env.execute("numbers")
    assert {name for name, _ in Notified.heard} == {
        "first",
        "second",
        "first closed",
        "second closed",
    }
    assert len({number for _, number in Notified.heard if number}) == 1


# -- through failures -----------------------------------------------------------------------------


def program(root: Path, exchange: str, **facts: Any) -> Program:
    settings = {"penstock__exchange": exchange, **facts.pop("settings", {})}
    return Program(root, settings=settings, **facts)


class TwoKeys(Program):
    """Counts by key twice: the second count reveals errors of the first one."""

    def count(self, numbers: DataStream) -> None:
        same = numbers.key_by(lambda n: n % 7, Types.LONG()).map(one, Types.LONG())
        super().count(same.uid("same"))


def test_restarts_lose_nothing_and_double_nothing(exchange: str, tmp_path: Path) -> None:
    counting = program(tmp_path, exchange, fails=(10, 45, 80))
    counting.run()
    assert counting.verdict().is_exactly_once


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "memory"])
def test_state_of_every_stage_is_restored(backend: str, tmp_path: Path) -> None:
    clock = ManualClock()
    counting = TwoKeys(
        tmp_path,
        [Burst(range(40)), Pause(10), Burst(range(40, 100))],
        fails=[42],
        clock=clock,
        settings={"penstock__exchange": SHUFFLE, "state__backend__type": backend},
    )
    job = counting.launch()
    wait_for_lines(counting, 40)
    while not job.wait_for_end(0.02):
        clock.advance(10)
    assert counting.verdict().is_exactly_once
    (recovery,) = counting.history().recoveries()
    assert recovery.checkpoint is not None


def test_barriers_may_overtake(exchange: str, tmp_path: Path) -> None:
    unaligned = {"execution__checkpointing__unaligned__enabled": "true"}
    counting = program(tmp_path, exchange, fails=(10, 45, 80), settings=unaligned)
    counting.run()
    assert counting.verdict().is_exactly_once


@pytest.mark.parametrize("ways", [(CHANNEL, SHUFFLE), (SHUFFLE, CHANNEL)])
def test_a_job_resumes_with_the_other_exchange(ways: tuple[str, str], tmp_path: Path) -> None:
    """The new driver may run on another cluster."""
    before, after = ways
    counting = program(tmp_path, before, script=idle_after(30))
    job = counting.launch()
    wait_for_records(job, 30)
    checkpoint(job)
    die(job)
    counting = program(tmp_path, after, script=bursts(60))
    counting.run()
    assert counting.verdict(60).is_exactly_once


SIDE = OutputTag("side", Types.LONG())


class Threes(KeyedProcessFunction[Any, int, int]):
    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        yield value
        if value % 3 == 0:
            yield SIDE, value


def test_side_outputs_and_custom_partitioners(exchange: str) -> None:
    env = made(exchange, parallelism=3)
    step = numbers(env, 60).key_by(lambda n: n % 7).process(Threes(), Types.LONG())
    distributed = step.get_side_output(SIDE).partition_custom(lambda key, n: key % n, lambda v: v)
    threes = distributed.map(lambda n: ("side", n)).union(
        step.rebalance().map(lambda n: ("main", n))
    )
    expected = [("main", n) for n in range(60)] + [("side", n) for n in range(0, 60, 3)]
    assert sorted(collected(threes)) == sorted(expected)
