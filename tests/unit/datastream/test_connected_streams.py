"""Two streams in one function, plain and by key, run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    ConnectedStreams,
    CoProcessFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.errors import InvalidJobError, StepError, UserFunctionError
from tests.unit.support import collected, environment, plan_of

LETTERS = [("a", 1), ("b", 2), ("a", 3)]
WORDS = [("a", "x"), ("c", "y"), ("a", "z")]

Pair = tuple[str, Any]


def first(pair: Pair) -> str:
    return pair[0]


class FirstField(KeySelector[Pair, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = 0

    def get_key(self, value: Pair) -> str:
        key: str = value[self.index]
        return key


def streams(env: StreamExecutionEnvironment) -> tuple[DataStream, DataStream]:
    return env.from_collection(LETTERS), env.from_collection(WORDS)


class Marked(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return (1, value)

    def map2(self, value: Any) -> Any:
        return (2, value)


MARKED = sorted([*((1, v) for v in LETTERS), *((2, v) for v in WORDS)], key=repr)


class NoOdd(CoMapFunction[int, int, int]):
    def map1(self, value: int) -> int | None:
        return None if value % 2 else value

    def map2(self, value: int) -> int:
        return value


class Repeated(CoFlatMapFunction[int, str, Any]):
    def flat_map1(self, value: int) -> Iterable[int]:
        yield from [value] * value

    def flat_map2(self, value: str) -> list[str] | None:
        return list(value) or None


class Waiting(KeyedCoProcessFunction[str, Pair, Pair, Any]):
    """Joins every record with all records of the other stream that have its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left", None))
        self.right = runtime_context.get_list_state(ListStateDescriptor("right", None))

    def process_element1(self, value: Pair, ctx: Any) -> Iterable[Any]:
        self.left.add(value[1])
        for other in self.right.get() or ():
            yield (ctx.get_current_key(), value[1], other)

    def process_element2(self, value: Pair, ctx: Any) -> Iterable[Any]:
        self.right.add(value[1])
        for other in self.left.get() or ():
            yield (ctx.get_current_key(), other, value[1])


JOINED = [("a", 1, "x"), ("a", 1, "z"), ("a", 3, "x"), ("a", 3, "z")]


class Seen(CoMapFunction[Pair, Pair, Any]):
    """Counts the records of a key, of both streams together."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map1(self, value: Pair) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        return (value[0], self.seen.value())

    map2 = map1


class SeenFlat(CoFlatMapFunction[Pair, Pair, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.inner = Seen()
        self.inner.open(runtime_context)

    def flat_map1(self, value: Pair) -> Any:
        return [self.inner.map1(value)]

    flat_map2 = flat_map1


class SeenProcess(CoProcessFunction[Pair, Pair, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.inner = Seen()
        self.inner.open(runtime_context)

    def process_element1(self, value: Pair, ctx: Any) -> Any:
        yield self.inner.map1(value)

    process_element2 = process_element1


SEEN = sorted([("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1), ("c", 1)])


# -- plain --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_record_comes_to_the_method_of_its_own_stream(parallelism: int) -> None:
    one, two = streams(environment(parallelism))
    assert sorted(collected(one.connect(two).map(Marked())), key=repr) == MARKED


def test_a_map_of_two_streams_drops_none() -> None:
    env = environment()
    one, two = env.from_collection([1, 2, 3]), env.from_collection([5])
    assert sorted(collected(one.connect(two).map(NoOdd(), Types.INT()))) == [2, 5]


def test_a_flat_map_of_two_streams_gives_any_number() -> None:
    env = environment()
    one, two = env.from_collection([0, 1, 2]), env.from_collection(["", "xy"])
    results = collected(one.connect(two).flat_map(Repeated()))
    assert sorted(map(str, results)) == ["1", "2", "2", "x", "y"]


class Timestamps(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield ctx.timestamp()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> None:
        return None


def test_a_record_without_event_time_has_pyflinks_timestamp() -> None:
    env = environment()
    one = env.from_collection([1])
    assert collected(one.connect(one).process(Timestamps())) == [-(2**63)]


class Itself(CoMapFunction[Any, Any, int]):
    def map1(self, value: Any) -> int:
        return id(self)

    map2 = map1


def test_both_streams_come_to_the_same_instance() -> None:
    one, two = streams(environment())
    assert len(set(collected(one.connect(two).map(Itself())))) == 1


def test_the_steps_have_the_names_that_pyflink_gives_them() -> None:
    one, two = streams(environment())
    plain, keyed = one.connect(two), one.key_by(first).connect(two.key_by(first))
    assert [s.map(Marked()).get_name() for s in (plain, keyed)] == ["Co-Map"] * 2
    assert [s.flat_map(Repeated()).get_name() for s in (plain, keyed)] == ["Co-Flat Map"] * 2
    assert plain.process(Timestamps()).get_name() == "Co-Process"
    assert keyed.process(Waiting()).get_name() == "Keyed Co-Process"


# -- by key -------------------------------------------------------------------------------------


def keyed_before(one: DataStream, two: DataStream) -> ConnectedStreams:
    return one.key_by(first).connect(two.key_by(FirstField()))


def keyed_after(one: DataStream, two: DataStream) -> ConnectedStreams:
    return one.connect(two).key_by(FirstField(), first, Types.STRING())


def keyed_again(one: DataStream, two: DataStream) -> ConnectedStreams:
    return one.key_by(len).connect(two).key_by(first, first)


@pytest.mark.parametrize("how", [keyed_before, keyed_after, keyed_again])
@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_streams_join_by_key(
    how: Callable[[DataStream, DataStream], ConnectedStreams],
    mode: RuntimeExecutionMode,
    parallelism: int,
) -> None:
    env = environment(parallelism).set_runtime_mode(mode)
    assert sorted(collected(how(*streams(env)).process(Waiting()))) == JOINED


@pytest.mark.parametrize("backend", ["memory", "hashmap", "rocksdb"])
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(Seen()),
        lambda s: s.flat_map(SeenFlat()),
        lambda s: s.process(SeenProcess()),
    ],
    ids=["map", "flat_map", "process"],
)
def test_both_streams_share_the_state_of_a_key(
    backend: str, build: Callable[[ConnectedStreams], DataStream]
) -> None:
    env = environment(2, state__backend__type=backend, penstock__micro_batch__max_records="1")
    assert sorted(collected(build(keyed_before(*streams(env))))) == SEEN


def test_batch_mode_finishes_a_key_of_both_streams_before_the_next() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    results = collected(keyed_before(*streams(env)).map(Marked()))
    keys = [value[0] for _, value in results]
    assert sorted(results, key=repr) == MARKED
    assert keys == sorted(keys)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_records_that_are_their_own_keys_come_to_their_stream(mode: RuntimeExecutionMode) -> None:
    env = environment(2).set_runtime_mode(mode)
    texts = env.from_collection(["a", "b"], Types.STRING()).key_by(lambda t: t, Types.STRING())
    pairs = env.from_collection(WORDS).key_by(first, Types.STRING())
    expected = sorted([(1, "a"), (1, "b"), *((2, w) for w in WORDS)], key=repr)
    assert sorted(collected(texts.connect(pairs).map(Marked())), key=repr) == expected


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers())),
    st.lists(st.tuples(st.integers(0, 3), st.integers())),
    st.integers(1, 3),
    st.sampled_from([RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]),
)
def test_a_join_is_the_product_of_what_has_the_same_key(
    left: list[tuple[int, int]],
    right: list[tuple[int, int]],
    parallelism: int,
    mode: RuntimeExecutionMode,
) -> None:
    env = environment(parallelism, penstock__micro_batch__max_records="2").set_runtime_mode(mode)
    one, two = env.from_collection(left), env.from_collection(right)
    joined = collected(one.connect(two).key_by(first, first).process(Waiting()))
    assert sorted(joined) == sorted((k, a, b) for k, a in left for m, b in right if k == m)


# -- broadcast ----------------------------------------------------------------------------------


class Rules(CoFlatMapFunction[int, int, Any]):
    """Keeps what the second stream says, and says it of the first's records."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def flat_map1(self, value: int) -> Any:
        yield ("record", value)

    def flat_map2(self, value: int) -> Any:
        yield ("rule", value, self.index)


def test_a_broadcast_stream_comes_to_every_subtask_beside_the_other() -> None:
    env = environment(3)
    records, rules = env.from_collection([1, 2, 3, 4]), env.from_collection([7])
    results = collected(records.connect(rules.broadcast()).flat_map(Rules()))
    assert sorted(r[1] for r in results if r[0] == "record") == [1, 2, 3, 4]
    assert sorted(r for r in results if r[0] == "rule") == [("rule", 7, i) for i in range(3)]


class Where(CoMapFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def map1(self, value: Any) -> Any:
        return (1, value, self.index)

    def map2(self, value: Any) -> Any:
        return (2, value, self.index)


@pytest.mark.parametrize("key_type", [None, Types.STRING()])
def test_a_keyed_stream_connected_with_a_broadcast_one_is_partitioned_by_key(key_type: Any) -> None:
    env = environment(3)
    keys = ["a", "b", "c", "d"] * 3
    keyed = env.from_collection(keys).key_by(lambda k: k, key_type)
    rules = env.from_collection([7]).broadcast()
    forth = collected(keyed.connect(rules).map(Where()))
    assert sorted(v for n, v, _ in forth if n == 1) == sorted(keys)
    assert len({(v, i) for n, v, i in forth if n == 1}) == 4, "a key came to two subtasks"
    assert sorted(i for n, _, i in forth if n == 2) == [0, 1, 2]
    back = collected(rules.connect(keyed).map(Where()))
    assert sorted(v for n, v, _ in back if n == 2) == sorted(keys)
    assert sorted(i for n, _, i in back if n == 1) == [0, 1, 2]


def test_one_keyed_stream_of_two_brings_no_state_by_key() -> None:
    env = environment()
    one, two = streams(env)
    step = one.key_by(first).connect(two.broadcast()).map(Seen())
    with pytest.raises(StepError, match="asks for keyed state but its stream has no key"):
        collected(step)


# -- unions as inputs ---------------------------------------------------------------------------


def test_several_streams_may_come_to_one_input() -> None:
    env = environment(2)
    ones = [env.from_collection([n]) for n in (1, 2, 3)]
    twos = [env.from_collection([n]).map(lambda n: n) for n in (10, 20)]
    both = ones[0].union(*ones[1:]).connect(twos[0].union(twos[1]))
    expected = [(1, 1), (1, 2), (1, 3), (2, 10), (2, 20)]
    assert sorted(collected(both.map(Marked()))) == expected
    assert sorted(collected(both.key_by(lambda n: n, lambda n: n).map(Marked()))) == expected


def test_a_stream_may_be_connected_with_itself() -> None:
    env = environment(2)
    one = env.from_collection([1, 2])
    assert sorted(collected(one.connect(one).map(Marked()))) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    keyed = env.from_collection(LETTERS).key_by(first)
    assert sorted(collected(keyed.connect(keyed).map(Seen())))[-1] == ("b", 2)


class Last(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


def test_results_of_a_keyed_step_may_be_connected() -> None:
    env = environment(2)
    one, two = streams(env)
    again = one.key_by(first).process(Last()).key_by(first)
    assert sorted(collected(again.connect(two.key_by(first)).map(Seen()))) == SEEN


# -- what goes wrong ----------------------------------------------------------------------------


class Broken(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value[7]


class BrokenProcess(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> None:
        return None

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return 7


def test_a_failure_names_the_step_and_the_record() -> None:
    one, two = streams(environment())
    with pytest.raises(UserFunctionError, match=r"'Co-Map' failed on record \('a', 'x'\)"):
        collected(one.connect(two).map(Broken()))
    one, two = streams(environment())
    with pytest.raises(UserFunctionError, match="must return an iterable or None; it returned 7"):
        collected(keyed_before(one, two).process(BrokenProcess()))


class AsksForKey(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_current_key()

    process_element2 = process_element1


class SetsTimers(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(1)
        return ()

    process_element2 = process_element1


def test_a_keyed_function_on_streams_without_keys_is_an_error() -> None:
    one, two = streams(environment())
    with pytest.raises(StepError, match="no current key"):
        collected(one.connect(two).process(AsksForKey()))


def test_timers_are_rejected_on_streams_without_keys() -> None:
    one, two = streams(environment())
    with pytest.raises(StepError, match="timers belong to keys"):
        collected(one.connect(two).process(SetsTimers()))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda s: s.map(Marked), "did you mean Marked()?"),
        (lambda s: s.map(lambda v: v), "map() of connected streams needs a CoMapFunction; got"),
        (lambda s: s.map(Repeated()), "needs a CoMapFunction"),
        (lambda s: s.flat_map(Marked()), "needs a CoFlatMapFunction"),
        (lambda s: s.process(Last()), "needs a CoProcessFunction or a KeyedCoProcessFunction"),
        (lambda s: s.process(Waiting), "did you mean Waiting()?"),
        (lambda s: s.key_by(FirstField, first), "did you mean FirstField()?"),
        (lambda s: s.key_by(first, first, Types.STRING), "key_type must be a type"),
        (lambda s: s.map(Marked(), Types.STRING), "did you forget the parentheses"),
    ],
)
def test_a_slip_is_rejected_where_it_is_written(
    build: Callable[[ConnectedStreams], Any], text: str
) -> None:
    one, two = streams(environment())
    with pytest.raises(InvalidJobError) as caught:
        build(one.connect(two))
    assert text in str(caught.value)


@pytest.mark.parametrize("join", ["connect", "union"])
def test_streams_of_two_environments_do_not_meet(join: str) -> None:
    one, two = environment().from_collection([1]), environment().from_collection([1])
    with pytest.raises(InvalidJobError, match=f"{join}.. of streams of two environments"):
        getattr(one, join)(two)
    with pytest.raises(InvalidJobError, match=f"{join}.. needs a DataStream; got 7"):
        getattr(one, join)(7)


@pytest.mark.parametrize("other", [Types.INT(), None])
def test_keys_of_two_types_do_not_meet(other: Any) -> None:
    one, two = streams(environment())
    both = one.key_by(first, Types.STRING()).connect(two.key_by(len, other))
    with pytest.raises(InvalidJobError, match=r"one type, but are String and .* key_type"):
        both.process(Waiting())
    assert both.key_by(first, first).process(Waiting())


def test_keys_without_a_type_meet_pickled_ones() -> None:
    env = environment()
    one, two = streams(env)
    both = one.key_by(first).connect(two.key_by(first, Types.PICKLED_BYTE_ARRAY()))
    both.process(Waiting()).print()
    assert len(plan_of(env).stages) == 3
