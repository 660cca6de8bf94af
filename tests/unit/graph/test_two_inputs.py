"""Plans of programs with connected streams and decouplings."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.datastream import CoMapFunction, DataStream, KeyedStream, StreamExecutionEnvironment
from penstock.errors import InvalidJobError
from penstock.graph.plan import Plan
from penstock.graph.render import render_json, render_mermaid, render_text
from tests.unit.graph.test_uids import uids
from tests.unit.support import environment, plan_of


class Both(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


def numbers(env: StreamExecutionEnvironment, name: str = "numbers") -> DataStream:
    return env.from_collection([1, 2, 3]).name(name)


def names(plan: Plan) -> list[str]:
    return [stage.name for stage in plan.stages]


def arrivals(plan: Plan) -> list[tuple[int, str, int, int]]:
    return [(c.producer, c.exchange.value, c.consumer, c.input) for c in plan.channels]


# -- connected ----------------------------------------------------------------------------------


def test_connected_streams_are_two_inputs_of_one_stage() -> None:
    env = environment()
    one, two = numbers(env, "one"), numbers(env, "two")
    one.union(numbers(env, "more")).connect(two).map(Both()).map(str).print()
    plan = plan_of(env)
    assert names(plan) == ["one", "two", "more", "Co-Map -> Map -> Print to Std. Out"]
    assert arrivals(plan) == [
        (0, "forward", 3, 0),
        (2, "forward", 3, 0),
        (1, "forward", 3, 1),
    ]


def test_a_diamond_of_connected_branches_is_two_stages() -> None:
    env = environment()
    source = numbers(env)
    source.map(str).connect(source.filter(bool)).map(Both()).print()
    plan = plan_of(env)
    assert names(plan) == ["numbers -> (Map, Filter)", "Co-Map -> Print to Std. Out"]
    assert arrivals(plan) == [(0, "forward", 1, 0), (0, "forward", 1, 1)]


def test_a_stream_connected_with_itself_has_two_channels() -> None:
    env = environment()
    keyed = numbers(env).key_by(str)
    keyed.connect(keyed).map(Both()).print()
    assert arrivals(plan_of(env)) == [(0, "hash", 1, 0), (0, "hash", 1, 1)]


def test_plans_show_the_input_of_a_channel() -> None:
    env = environment()
    one, two = numbers(env, "one").uid("one"), numbers(env, "two").uid("two")
    both = one.key_by(str).connect(two.key_by(str)).map(Both()).uid("both")
    both.map(str).uid("text").print().uid("end")
    plan = plan_of(env)
    assert "  reads    channel 0 (hash, input 1) from stage 0\n" in render_text(plan)
    assert "  reads    channel 1 (hash, input 2) from stage 1\n" in render_text(plan)
    assert "Co-Map  [keyed state]" in render_text(plan)
    assert "  s1 -->|hash, input 2| s2" in render_mermaid(plan)
    assert [c["input"] for c in render_json(plan)["channels"]] == [1, 2]


def test_the_uid_of_a_step_depends_on_the_order_of_its_inputs() -> None:
    def identity(inputs: str) -> str:
        env = environment()
        one, two, three = (numbers(env).uid(str(n)) for n in (1, 2, 3))
        both = {
            "1 2 | 3": one.union(two).connect(three),
            "1 | 2 3": one.connect(two.union(three)),
            "2 3 | 1": two.union(three).connect(one),
        }[inputs]
        both.map(Both()).print()
        return uids(env)[-2]

    assert identity("1 2 | 3") == identity("1 2 | 3")
    assert len({identity("1 2 | 3"), identity("1 | 2 3"), identity("2 3 | 1")}) == 3


GOLDEN = ["660714c2", "16f03323", "ba42cd67", "2693d886", "d51067ff", "05f2249b"]


def test_the_uids_of_programs_with_one_input_never_change() -> None:
    env = environment()
    words = numbers(env).flat_map(str)
    words.key_by(str).reduce(max).print()
    words.union(words.map(str)).rebalance().print()
    assert [uid[:8] for uid in uids(env)] == GOLDEN


# -- decoupled ----------------------------------------------------------------------------------


def test_a_decoupling_begins_a_stage_and_what_follows_is_chained_to_it() -> None:
    env = environment()
    numbers(env).map(str).decouple("own pace").filter(bool).print()
    plan = plan_of(env)
    assert names(plan) == ["numbers -> Map", "own pace -> Filter -> Print to Std. Out"]
    assert arrivals(plan) == [(0, "forward", 1, 0)]


def test_a_decoupling_has_the_parallelism_of_its_upstream() -> None:
    env = environment(4)
    steps = numbers(env).map(str).set_parallelism(3)
    steps.decouple().print().set_parallelism(3)
    numbers(env).decouple().decouple().map(str).print()
    plan = plan_of(env)
    assert {s.name: s.parallelism for s in plan.stages if "Decouple" in s.name} == {
        "Decouple -> Print to Std. Out": 3,
        "Decouple": 1,
    }


def test_a_decoupling_of_a_union_is_as_wide_as_the_widest() -> None:
    env = environment(4)
    wide = numbers(env).map(str).set_parallelism(3)
    wide.union(numbers(env)).decouple().print().set_parallelism(3)
    plan = plan_of(env)
    assert plan.stages[-1].parallelism == 3
    assert sorted(c.exchange.value for c in plan.stages[-1].inputs) == ["forward", "rebalance"]


def test_a_decoupling_may_follow_an_exchange_and_set_a_parallelism() -> None:
    env = environment(2)
    numbers(env).rebalance().decouple().set_parallelism(2).print()
    numbers(env).decouple().uid("wider").set_parallelism(2).print()
    assert arrivals(plan_of(env)) == [(0, "rebalance", 1, 0), (2, "rebalance", 3, 0)]


def test_a_decoupling_feeds_branches_keys_and_other_decouplings() -> None:
    env = environment()
    cut = numbers(env).decouple("first")
    cut.decouple("second").print()
    cut.key_by(str).reduce(max).print()
    cut.print()
    assert names(plan_of(env)) == [
        "numbers",
        "first -> Print to Std. Out",
        "second -> Print to Std. Out",
        "Reduce -> Print to Std. Out",
    ]


def test_a_decoupling_changes_no_uid_downstream() -> None:
    def identities(*, decoupled: bool) -> list[str]:
        env = environment()
        words = numbers(env).map(str)
        if decoupled:
            words = words.decouple().decouple("twice")
        words.key_by(str).reduce(max).map(str).print()
        words.connect(words).map(Both()).print()
        return uids(env)

    plain, cut = identities(decoupled=False), identities(decoupled=True)
    assert [uid for uid in cut if uid in plain] == plain
    assert len(cut) == len(plain) + 2


def test_a_decoupling_takes_a_name_and_a_uid() -> None:
    env = environment()
    numbers(env).decouple("a").name("b").uid("cut").print()
    (node,) = [n for s in plan_of(env).stages for n in s.nodes if n.uid == "cut"]
    assert (node.name, node.kind.value) == ("b", "decouple")


def test_a_keyed_step_begins_a_stage_anyway() -> None:
    keyed: KeyedStream = numbers(environment()).key_by(str)
    with pytest.raises(InvalidJobError, match=r"key_by\(\) starts a new stage.*after the keyed"):
        keyed.decouple()
