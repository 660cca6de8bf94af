"""Streams connected with a broadcast one, and what is kept of it, run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time, Types
from penstock.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    CheckpointedFunction,
    CoMapFunction,
    DataStream,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import InvalidJobError, PenstockError
from penstock.graph.render import render_text
from tests.unit.support import collected, environment, plan_of

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
SEEN = MapStateDescriptor("seen", Types.LONG(), Types.STRING())
PRICES = [("a", 10), ("b", 20), ("a", 11)]
ORDERS = ["a", "b", "c", "a"]

BATCH = RuntimeExecutionMode.BATCH
MODES = [RuntimeExecutionMode.STREAMING, BATCH]

Price = tuple[str, int]


class Priced(BroadcastProcessFunction[str, Price, Any]):
    """Says of each order what its price is, and of each price where it came to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def process_element(
        self, value: str, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        yield ("order", value, ctx.get_broadcast_state(RULES).get(value))

    def process_broadcast_element(
        self, value: Price, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        state = ctx.get_broadcast_state(RULES)
        state.put(*value)
        yield ("price", self.index, dict(state.items()))


class Numbered(KeyedBroadcastProcessFunction[str, str, Price, Any]):
    """Numbers the orders of a key, beside their price."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: str, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        price = ctx.get_broadcast_state(RULES).get(value)
        yield (ctx.get_current_key(), self.count.value(), price)

    def process_broadcast_element(
        self, value: Price, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        yield ("price", 0, value[1])


def itself(record: Any) -> Any:
    return record


def streams(env: StreamExecutionEnvironment) -> tuple[DataStream, BroadcastStream]:
    return env.from_collection(ORDERS), env.from_collection(PRICES).broadcast(RULES)


def plain(env: StreamExecutionEnvironment) -> Any:
    orders, prices = streams(env)
    connected: BroadcastConnectedStream = orders.connect(prices)
    return connected


def keyed(env: StreamExecutionEnvironment) -> Any:
    orders, prices = streams(env)
    return orders.key_by(itself, Types.STRING()).connect(prices)


# -- what comes out -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_subtask_keeps_all_that_is_broadcast(
    mode: RuntimeExecutionMode, parallelism: int
) -> None:
    results = collected(plain(environment(parallelism).set_runtime_mode(mode)).process(Priced()))
    told = [{"a": 10}, {"a": 10, "b": 20}, {"a": 11, "b": 20}]
    for subtask in range(parallelism):
        assert [r[2] for r in results if r[:2] == ("price", subtask)] == told
    assert sorted(r[1] for r in results if r[0] == "order") == sorted(ORDERS)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("records", ["1", "100"])
def test_in_batch_mode_all_that_is_broadcast_comes_first(parallelism: int, records: str) -> None:
    env = environment(parallelism, penstock__micro_batch__max_records=records)
    results = collected(plain(env.set_runtime_mode(BATCH)).process(Priced()))
    orders = sorted((r[1:] for r in results if r[0] == "order"), key=repr)
    assert orders == [("a", 11), ("a", 11), ("b", 20), ("c", None)]
    env = environment(parallelism, penstock__micro_batch__max_records=records)
    results = collected(keyed(env.set_runtime_mode(BATCH)).process(Numbered()))
    orders = sorted((r for r in results if r[0] != "price"), key=repr)
    assert orders == [("a", 1, 11), ("a", 2, 11), ("b", 1, 20), ("c", 1, None)]
    assert sum(r[0] == "price" for r in results) == len(PRICES) * parallelism


def test_in_batch_mode_one_source_may_be_both_sides_and_long() -> None:
    settings = {"penstock__micro_batch__max_records": "5", "penstock__channel__max_records": "10"}
    env = environment(2, **settings).set_runtime_mode(BATCH)
    numbers = env.from_collection(list(range(100)))
    prices = numbers.map(lambda n: (str(n), n), Types.TUPLE([Types.STRING(), Types.LONG()]))
    both = numbers.map(str, Types.STRING()).connect(prices.broadcast(RULES))
    orders = [r[1:] for r in collected(both.process(Priced())) if r[0] == "order"]
    assert sorted(orders) == sorted((str(n), n) for n in range(100))


def test_in_a_micro_batch_what_is_broadcast_comes_first() -> None:
    # A diamond over the shuffle: both sides of one source are always in the same micro-batch.
    env = environment(2, penstock__exchange="shuffle", penstock__micro_batch__max_records="3")
    numbers = env.from_collection(list(range(20)))
    prices = numbers.map(lambda n: (str(n), n), Types.TUPLE([Types.STRING(), Types.LONG()]))
    texts = numbers.map(str, Types.STRING())
    results = collected(texts.connect(prices.broadcast(RULES)).process(Priced()))
    assert all(r[2] == int(r[1]) for r in results if r[0] == "order")
    by_key = texts.key_by(itself, Types.STRING()).connect(prices.broadcast(RULES))
    orders = [r for r in collected(by_key.process(Numbered())) if r[0] != "price"]
    assert sorted(orders) == sorted((str(n), 1, n) for n in range(20))


@pytest.mark.parametrize("backend", ["memory", "hashmap", "rocksdb"])
def test_keys_keep_their_state_beside_what_is_broadcast(backend: str) -> None:
    settings = {"state__backend__type": backend, "penstock__micro_batch__max_records": "1"}
    results = collected(keyed(environment(2, **settings)).process(Numbered()))
    counts = sorted(r[:2] for r in results if r[0] != "price")
    assert counts == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99))),
    st.lists(st.sampled_from("abcd")),
    st.integers(1, 3),
    st.sampled_from([1, 2, 100]),
)
def test_a_lookup_in_batch_mode_is_one_in_the_last_prices(
    prices: list[Price], orders: list[str], parallelism: int, records: int
) -> None:
    env = environment(parallelism, penstock__micro_batch__max_records=str(records))
    env.set_runtime_mode(BATCH)
    rules = env.from_collection(prices).broadcast(RULES)
    by_key = env.from_collection(orders).key_by(itself, Types.STRING())
    results = collected(by_key.connect(rules).process(Numbered()))
    assert sorted((r[0], r[2]) for r in results if r[0] != "price") == sorted(
        (order, dict(prices).get(order)) for order in orders
    )


class Two(BroadcastProcessFunction[Any, Any, Any]):
    """Uses two states, of which one counts what the other has."""

    def process_element(self, value: Any, ctx: Any) -> None:
        return None

    def process_broadcast_element(self, value: Price, ctx: Any) -> Iterable[Any]:
        rules, seen = ctx.get_broadcast_state(RULES), ctx.get_broadcast_state(SEEN)
        rules.put(*value)
        seen.put(value[1], value[0])
        yield (len(list(rules)), len(list(seen)))


def test_a_stream_may_fill_several_states() -> None:
    env = environment()
    rules = env.from_collection(PRICES).broadcast(RULES, SEEN)
    assert collected(env.from_collection([1]).connect(rules).process(Two()))[-1] == (2, 3)


def test_unions_may_be_on_both_sides() -> None:
    env = environment(2).set_runtime_mode(BATCH)
    orders = [env.from_collection([o]) for o in ORDERS]
    prices = [env.from_collection([p]) for p in PRICES[:2]]
    rules = prices[0].union(prices[1]).broadcast(RULES)
    connected = orders[0].union(*orders[1:]).connect(rules)
    results = collected(connected.process(Priced()))
    expected = [("a", 10), ("a", 10), ("b", 20), ("c", None)]
    assert sorted((r[1:] for r in results if r[0] == "order"), key=repr) == expected


class Facts(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield (ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time() > 1.6e12)

    process_broadcast_element = process_element


def test_contexts_tell_the_times_that_pyflink_tells() -> None:
    least = -(2**63)
    assert set(collected(keyed(environment()).process(Facts()))) == {(least, least, True)}


def test_a_stream_is_broadcast_into_several_functions_that_keep_each_its_own() -> None:
    env = environment(2).set_runtime_mode(BATCH)
    orders, prices = streams(env)
    one = orders.connect(prices).process(Priced()).filter(lambda r: r[0] == "order")
    other = orders.key_by(itself).connect(prices).process(Numbered())
    assert len(collected(one.union(other.filter(lambda r: r[0] != "price")))) == 2 * len(ORDERS)


class Kept(FlatMapFunction[Any, Any], CheckpointedFunction):
    """Keeps a map without any broadcast side: every subtask alike, from its own input."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_broadcast_state(SEEN)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None: ...

    def flat_map(self, value: int) -> Iterable[Any]:
        self.state.put(value, str(value))
        yield len(list(self.state))


def test_any_checkpointed_function_may_have_broadcast_state() -> None:
    env = environment(1, penstock__micro_batch__max_records="1")
    assert collected(env.from_collection([1, 2, 1]).flat_map(Kept())) == [1, 2, 2]


class Both(Priced, CheckpointedFunction):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.kept = store.get_list_state(ListStateDescriptor("count", Types.LONG()))
        self.count = sum(self.kept.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.kept.update([self.count])

    def process_element(self, value: str, ctx: Any) -> Iterable[Any]:
        self.count += 1
        yield ("order", self.count, ctx.get_broadcast_state(RULES).get(value))


def test_a_function_may_keep_lists_beside_what_is_broadcast() -> None:
    env = environment(1, penstock__micro_batch__max_records="1").set_runtime_mode(BATCH)
    results = collected(plain(env).process(Both()))
    assert [r[1:] for r in results if r[0] == "order"] == [(1, 11), (2, 20), (3, None), (4, 11)]


def test_the_steps_have_the_names_that_pyflink_gives_them() -> None:
    env = environment()
    one, other = plain(env).process(Priced()), keyed(env).process(Numbered())
    assert one.get_name() == "Co-Process-Broadcast"
    assert other.get_name() == "Keyed-Co-Process-Broadcast"
    other.print()
    text = render_text(plan_of(env))
    assert "Keyed-Co-Process-Broadcast" in text
    assert "input 2" in text


# -- what goes wrong ----------------------------------------------------------------------------


class TouchesKeyed(Numbered):
    def process_broadcast_element(self, value: Price, ctx: Any) -> Iterable[Any]:
        yield self.count.value()


class WritesElsewhere(Numbered):
    def process_element(self, value: str, ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put(value, 1)
        yield value


class ClearsElsewhere(Numbered):
    def process_element(self, value: str, ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).clear()
        yield value


class SetsTimers(Numbered):
    def process_element(self, value: str, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer("soon")
        yield value


class AsksForOther(Numbered):
    def process_element(self, value: str, ctx: Any) -> Iterable[Any]:
        yield ctx.get_broadcast_state(SEEN).get(1)


class AsksForOtherType(Numbered):
    def process_element(self, value: str, ctx: Any) -> Iterable[Any]:
        changed = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
        yield ctx.get_broadcast_state(changed).get(value)


class PutsWrong(Numbered):
    def process_broadcast_element(self, value: Price, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value[0], "no number")


class ReturnsNumber(Numbered):
    def process_broadcast_element(self, value: Price, ctx: Any) -> Any:
        return value[1]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (TouchesKeyed(), "keyed state belongs to a key"),
        (WritesElsewhere(), "no attribute 'put'"),
        (ClearsElsewhere(), "can be changed in process_broadcast_element() only"),
        (SetsTimers(), "a timer is set to milliseconds since the epoch"),
        (AsksForOther(), "asks for broadcast state 'seen', but broadcast() has only 'rules'"),
        (AsksForOtherType(), "state 'rules' was declared as"),
        (PutsWrong(), "operator state 'rules': an element, field \"['a']\" does not match"),
        (ReturnsNumber(), "must return an iterable or None; it returned 10"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_mistake_in_a_function_is_named(function: Numbered, text: str) -> None:
    with pytest.raises(PenstockError) as caught:
        collected(keyed(environment()).process(function))
    assert "Keyed-Co-Process-Broadcast" in str(caught.value)
    assert text in str(caught.value)


class Neither(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any: ...

    def map2(self, value: Any) -> Any: ...


def expiring() -> MapStateDescriptor:
    descriptor = MapStateDescriptor("s", Types.LONG(), Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    return descriptor


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda e: keyed(e).process(Priced()), "a keyed stream connected with a broadcast one"),
        (lambda e: plain(e).process(Numbered()), "needs a BroadcastProcessFunction; got"),
        (lambda e: plain(e).process(Priced), "did you mean Priced()?"),
        (lambda e: plain(e).process(Neither()), "needs a BroadcastProcessFunction; got"),
        (lambda e: plain(e).process(Priced(), Types.LONG), "did you forget the parentheses"),
        (lambda e: e.from_collection([1]).broadcast(7), "needs MapStateDescriptors; got 7"),
        (lambda e: e.from_collection([1]).broadcast(RULES, RULES), "2 states named 'rules'"),
        (lambda e: e.from_collection([1]).broadcast(expiring()), "time-to-live"),
        (lambda e: e.from_collection([1]).key_by(itself).broadcast(RULES), "is not possible"),
    ],
)
def test_a_slip_is_rejected_where_it_is_written(
    build: Callable[[StreamExecutionEnvironment], Any], text: str
) -> None:
    with pytest.raises(InvalidJobError) as caught:
        build(environment())
    assert text in str(caught.value)


def test_streams_of_two_environments_do_not_meet() -> None:
    rules = environment().from_collection([1]).broadcast(RULES)
    with pytest.raises(InvalidJobError, match="streams of two environments"):
        environment().from_collection([1]).connect(rules)


def test_nothing_else_can_be_done_with_a_broadcast_stream() -> None:
    rules = environment().from_collection([1]).broadcast(RULES)
    with pytest.raises(AttributeError, match="'BroadcastStream' object has no attribute 'map'"):
        rules.map(itself)  # type: ignore[attr-defined]
