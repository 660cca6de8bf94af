"""Ways to deal records out that a program chooses: its own partitioner, and Flink's named ones."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream import (
    DataStream,
    KeySelector,
    Partitioner,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.errors import InvalidJobError, UnserializableFunctionError, UserFunctionError
from penstock.graph.transformation import Exchange
from tests.unit.support import collected, environment, plan_of


class Where(ProcessFunction[Any, Any]):
    """Says in which subtask a record is."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield self.index, value


class ByRemainder(Partitioner):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    def partition(self, key: int, num_partitions: int) -> int:
        assert self.opened
        return key % num_partitions


class Number(KeySelector[tuple[str, int], int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.field = 1

    def get_key(self, value: tuple[str, int]) -> int:
        return int(value[self.field])


PAIRS = [("a", n) for n in range(9)]


def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(PAIRS, Types.TUPLE([Types.STRING(), Types.LONG()]))


@pytest.mark.parametrize(
    ("partitioner", "selector"),
    [
        (ByRemainder(), Number()),
        (lambda key, count: key % count, lambda pair: pair[1]),
    ],
    ids=["classes", "callables"],
)
def test_a_partitioner_chooses_the_subtask_of_a_record(partitioner: Any, selector: Any) -> None:
    where = pairs(environment(parallelism=3)).partition_custom(partitioner, selector)
    found = collected(where.process(Where()))
    assert sorted(found) == sorted((n % 3, ("a", n)) for n in range(9))


def test_records_stay_in_order_on_their_way_to_a_subtask() -> None:
    dealt = pairs(environment(parallelism=2)).partition_custom(lambda k, n: 1, lambda p: p[1])
    assert collected(dealt.process(Where())) == [(1, pair) for pair in PAIRS]


@pytest.mark.parametrize("number", [3, -1, "0", None, 0.0])
def test_a_number_that_no_subtask_has_is_an_error(number: Any) -> None:
    dealt = pairs(environment(parallelism=3)).partition_custom(lambda k, n: number, lambda p: p[1])
    with pytest.raises(UserFunctionError, match=r"partition_custom.*a number from 0 to 2, not"):
        collected(dealt.map(lambda v: v))


def test_a_partitioner_that_fails_is_named_with_the_record() -> None:
    dealt = pairs(environment(parallelism=2)).partition_custom(lambda k, n: 1 // k, lambda p: p[1])
    with pytest.raises(UserFunctionError, match=r"partition_custom.*\('a', 0\)") as raised:
        collected(dealt.map(lambda v: v))
    assert "ZeroDivisionError" in str(raised.value)


def test_a_partitioner_that_cannot_travel_is_named() -> None:
    lock = threading.Lock()
    dealt = pairs(environment()).partition_custom(lambda k, n: lock and 0, lambda p: p[1])
    with pytest.raises(UnserializableFunctionError, match="partition_custom"):
        collected(dealt.map(lambda v: v))


def test_a_partitioner_is_no_step_and_no_way_around_a_key() -> None:
    env = environment()
    with pytest.raises(InvalidJobError, match=r"partition_custom\(\) is not a step"):
        pairs(env).partition_custom(ByRemainder(), Number()).name("x")
    with pytest.raises(InvalidJobError, match="a keyed stream is partitioned by its key"):
        pairs(env).key_by(Number()).partition_custom(ByRemainder(), Number())
    with pytest.raises(InvalidJobError, match=r"did you mean ByRemainder\(\)"):
        pairs(env).partition_custom(ByRemainder, Number())  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="needs a Partitioner or a callable; got 3"):
        pairs(env).partition_custom(3, Number())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "exchange", ["rebalance", "rescale", "shuffle", "forward", "broadcast", "global"]
)
def test_every_named_exchange_is_one_and_brings_all_records(exchange: str) -> None:
    env = environment(parallelism=2)
    stream = pairs(env).rebalance().map(lambda v: v)
    dealt = getattr(stream, "global_" if exchange == "global" else exchange)()
    found = collected(dealt.process(Where()).disable_chaining())
    times = 2 if exchange == "broadcast" else 1
    assert sorted(v for _, v in found) == sorted(PAIRS * times)
    if exchange == "global":
        assert {index for index, _ in found} == {0}


def test_an_exchange_is_in_the_plan() -> None:
    env = environment(parallelism=2)
    pairs(env).partition_custom(ByRemainder(), Number()).print()
    (channel,) = plan_of(env).channels
    assert channel.exchange is Exchange.CUSTOM


def test_a_projection_keeps_some_fields_in_the_order_given() -> None:
    projected = pairs(environment()).project(1, 0, 1)
    assert projected.get_type() == Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
    assert collected(projected) == [(n, "a", n) for n in range(9)]
    keyed = pairs(environment()).key_by(lambda p: p[0]).project(1)
    assert collected(keyed) == [(n,) for n in range(9)]


@pytest.mark.parametrize("field", [2, -1, "a"])
def test_a_projection_of_a_field_that_is_not_there_is_rejected(field: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"takes fields from 0 to 1 here; got"):
        pairs(environment()).project(field)


def test_a_projection_needs_a_tuple_and_a_field() -> None:
    with pytest.raises(InvalidJobError, match="needs a stream of a declared TUPLE type"):
        environment().from_collection([(1, 2)]).project(0)
    with pytest.raises(InvalidJobError, match="at least one field"):
        pairs(environment()).project()


def test_a_cached_stream_gives_its_records_to_every_job() -> None:
    cached = pairs(environment()).map(lambda p: p[1]).cache()
    assert collected(cached.map(lambda n: n + 1)) == list(range(1, 10))
    assert collected(cached) == list(range(9))
    cached.invalidate()
    assert collected(cached) == list(range(9))
