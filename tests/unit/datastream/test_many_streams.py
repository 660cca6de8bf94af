"""Unions, diamonds, decouplings and sources of different pace, run in this process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.indexed_sources import NumberSequenceSource
from penstock.datastream import (
    CoMapFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import Burst, Pause, ScriptedSource
from tests.unit.support import WatchedSubmitter, collected, environment

NO_WATERMARKS = WatermarkStrategy.no_watermarks()
MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]


def same(value: Any) -> Any:
    return value


def scripted(env: StreamExecutionEnvironment, name: str, *steps: Any) -> DataStream:
    return env.from_source(ScriptedSource(steps, Types.LONG()), NO_WATERMARKS, name)


def sequence(env: StreamExecutionEnvironment, start: int, end: int) -> DataStream:
    return env.from_source(NumberSequenceSource(start, end), NO_WATERMARKS, f"from {start}")


class Marked(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return (1, value)

    def map2(self, value: Any) -> Any:
        return (2, value)


class Numbered(KeyedProcessFunction[Any, Any, Any]):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield (ctx.get_current_key(), self.count.value())


class Sum(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Adds up both streams of a key, and tells the sum at each record of the second."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element1(self, value: int, ctx: Any) -> Iterable[Any]:
        self.sum.update((self.sum.value() or 0) + value)
        yield (ctx.get_current_key(), self.sum.value())

    process_element2 = process_element1


# -- unions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_union_of_unions_has_every_record_of_all(mode: RuntimeExecutionMode) -> None:
    env = environment(2).set_runtime_mode(mode)
    one, two, three, four = (env.from_collection([n, -n]) for n in (1, 2, 3, 4))
    all_four = one.union(two).union(three.union(four))
    assert sorted(collected(all_four.map(same))) == [-4, -3, -2, -1, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_united_with_itself_has_every_record_twice(mode: RuntimeExecutionMode) -> None:
    env = environment(2).set_runtime_mode(mode)
    one = env.from_collection([1, 2])
    assert sorted(collected(one.union(one).map(same))) == [1, 1, 2, 2]
    assert sorted(collected(one.union(one, one).key_by(same).process(Numbered()))) == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 2),
        (2, 3),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_streams_of_different_parallelism_unite(mode: RuntimeExecutionMode) -> None:
    env = environment(2).set_runtime_mode(mode)
    wide = sequence(env, 0, 9).set_parallelism(3).map(same).set_parallelism(3)
    narrow = env.from_collection(range(10, 20))
    united = narrow.union(wide, wide.map(same).set_parallelism(1))
    expected = sorted([*range(20), *range(10)])
    assert sorted(collected(united.map(same))) == expected
    assert sorted(collected(united.key_by(same).filter(lambda _: True))) == expected


@pytest.mark.parametrize("mode", MODES)
def test_results_of_keyed_steps_unite_with_others(mode: RuntimeExecutionMode) -> None:
    env = environment(2).set_runtime_mode(mode)
    words = env.from_collection(["a", "b", "a"])
    counts = words.key_by(same).process(Numbered())
    others = env.from_collection([("z", 0)])
    assert sorted(collected(others.union(counts))) == [("a", 1), ("a", 2), ("b", 1), ("z", 0)]


def test_a_keyed_stream_unites_by_its_values() -> None:
    env = environment(2)
    words = env.from_collection(["a", "b"])
    assert sorted(collected(words.key_by(same).union(words.key_by(len)))) == ["a", "a", "b", "b"]


def test_exchanges_of_united_streams_stay_their_own() -> None:
    env = environment(3)
    once, thrice = env.from_collection([1]), env.from_collection([2])
    assert sorted(collected(once.global_().union(thrice.broadcast()).map(same))) == [1, 2, 2, 2]


# -- diamonds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_branches_of_one_source_meet_in_a_union(mode: RuntimeExecutionMode) -> None:
    env = environment(2, penstock__micro_batch__max_records="7").set_runtime_mode(mode)
    source = sequence(env, 1, 30)
    even, counts = source.filter(lambda n: n % 2 == 0), source.key_by(lambda n: n % 3)
    late = counts.process(Numbered()).map(lambda pair: pair[1])
    together = even.union(late).key_by(lambda _: 0).process(Numbered())
    assert sorted(n for _, n in collected(together)) == list(range(1, 46))


@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
@pytest.mark.parametrize("mode", MODES)
def test_branches_of_one_source_meet_in_connected_streams(
    mode: RuntimeExecutionMode, exchange: str
) -> None:
    env = environment(2, penstock__micro_batch__max_records="7", penstock__exchange=exchange)
    env.set_runtime_mode(mode)
    source = sequence(env, 1, 30)
    plain = source.map(same)
    by_three = source.key_by(lambda n: n % 3).process(Numbered()).map(lambda pair: pair[1])
    assert sorted(collected(plain.connect(by_three).map(Marked()))) == sorted(
        [*((1, n) for n in range(1, 31)), *((2, n) for n in [*range(1, 11)] * 3)]
    )
    sums = plain.connect(by_three).key_by(lambda _: 0, lambda _: 0).process(Sum())
    assert max(n for _, n in collected(sums)) == sum(range(31)) + 3 * sum(range(11))


def test_a_full_channel_of_a_diamond_does_not_stop_its_other_branch() -> None:
    env = environment(penstock__micro_batch__max_records="5", penstock__channel__max_records="5")
    source = sequence(env, 1, 60)
    slow = source.rebalance().map(same).rebalance().map(same).rebalance().map(same)
    sums = source.connect(slow).key_by(lambda _: 0, lambda _: 0).process(Sum())
    assert max(n for _, n in collected(sums)) == 2 * sum(range(61))


@settings(max_examples=5, deadline=None)
@given(
    st.integers(0, 40),
    st.integers(1, 3),
    st.integers(3, 9),
    st.sampled_from(MODES),
    st.sampled_from(["channel", "shuffle"]),
)
def test_a_diamond_neither_loses_nor_doubles(
    records: int, parallelism: int, size: int, mode: RuntimeExecutionMode, exchange: str
) -> None:
    env = environment(
        parallelism, penstock__micro_batch__max_records=str(size), penstock__exchange=exchange
    )
    source = env.set_runtime_mode(mode).from_collection(range(records))
    left = source.map(same).decouple().map(same)
    right = source.key_by(lambda n: n % 5).filter(lambda n: n % 2 == 0)
    counted = Counter(collected(left.union(right, source).rebalance().map(same)))
    assert counted == Counter([*range(records)] * 2 + [*range(0, records, 2)])


# -- sources of different pace ------------------------------------------------------------------


@pytest.mark.parametrize("early", [1, 2])
def test_a_source_that_ends_early_does_not_stop_the_other(early: int) -> None:
    env = environment(2, execution__checkpointing__interval="10 ms")
    short = scripted(env, "short", Burst([1, 2]))
    long = scripted(env, "long", *[Burst([10]), Pause(0.03)] * 4)
    one, two = (short, long) if early == 1 else (long, short)
    keyed = one.connect(two).key_by(lambda _: "k", lambda _: "k", Types.STRING())
    assert max(n for _, n in collected(keyed.process(Sum()))) == 43


def test_a_source_without_records_ends_at_once() -> None:
    env = environment(2)
    nothing, some = scripted(env, "nothing"), scripted(env, "some", Burst([1, 2]))
    assert sorted(collected(nothing.connect(some).map(Marked()))) == [(2, 1), (2, 2)]
    assert sorted(collected(some.union(nothing).map(same))) == [1, 2]


# -- decoupled ----------------------------------------------------------------------------------


class Here(MapFunction[Any, Any]):
    """Notes which subtask a record has come to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return (value, self.index)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_records_stay_in_their_subtask_and_in_order_after_decouple(
    parallelism: int, mode: RuntimeExecutionMode
) -> None:
    env = environment(parallelism, penstock__micro_batch__max_records="10").set_runtime_mode(mode)
    before = sequence(env, 1, 100).map(Here())
    results = collected(before.decouple().decouple("again").map(Here()))
    assert sorted(n for (n, _), _ in results) == list(range(1, 101))
    assert all(was == came for (_, was), came in results)
    for subtask in range(parallelism):
        mine = [n for (n, was), _ in results if was == subtask]
        assert mine == sorted(mine)


@pytest.mark.parametrize("type_info", [None, Types.LONG(), Types.STRING()])
def test_what_leaves_a_decoupling_is_what_came(type_info: Any) -> None:
    env = environment(2)
    values = ["a", "b", "c"] if type_info == Types.STRING() else [1, 2, 3]
    stream = env.from_collection(values, type_info).decouple()
    assert stream.get_type() == (type_info or Types.PICKLED_BYTE_ARRAY())
    assert sorted(collected(stream.rebalance().map(same))) == values
    assert sorted(collected(stream.key_by(same, type_info).filter(lambda _: True))) == values


class ByLength(KeySelector[Any, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.name = runtime_context.get_task_name()

    def get_key(self, value: Any) -> int:
        assert self.name == "cut"
        return len(value)


def test_a_key_selector_after_decouple_is_opened() -> None:
    env = environment(2)
    words = env.from_collection(["a", "bb", "c"]).decouple("cut")
    counts = words.key_by(ByLength()).process(Numbered())
    assert sorted(collected(counts)) == [(1, 1), (1, 2), (2, 1)]


def test_branches_of_a_decoupling_do_not_see_each_others_changes() -> None:
    def append(record: list[int]) -> list[int]:
        record.append(9)
        return record

    env = environment()
    cut = env.from_collection([[1]]).decouple()
    assert sorted(collected(cut.map(append).union(cut, cut.rebalance()))) == [[1], [1], [1, 9]]


class HoldsBehindTheCut(WatchedSubmitter):
    """Lets no micro-batch of the second stage begin until the first has run some."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self._wanted = wanted
        self._lock = threading.Lock()
        self.before_the_cut = 0
        self.came_in_time = True

    def before(self, instruction: Any) -> None:
        if instruction.stage == 0:
            with self._lock:
                self.before_the_cut += 1
            return
        end = time.monotonic() + 10
        while self.before_the_cut < self._wanted and self.came_in_time:
            self.came_in_time = time.monotonic() < end
            time.sleep(0.002)


def test_steps_before_decouple_continue_while_steps_after_it_are_blocked() -> None:
    held = HoldsBehindTheCut(wanted=5)
    env = held.watch(environment(penstock__micro_batch__max_records="10"))
    results = collected(sequence(env, 1, 100).map(same).decouple().map(same))
    assert sorted(results) == list(range(1, 101))
    assert held.came_in_time
