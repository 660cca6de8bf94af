from __future__ import annotations

import pytest

from penstock.common import Types
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.errors import DuplicateUidError, InvalidJobError
from penstock.graph.plan import Plan
from tests.unit.support import environment, plan_of


def names(plan: Plan) -> list[str]:
    return [stage.name for stage in plan.stages]


def exchanges(plan: Plan) -> list[tuple[int, str, int]]:
    return [(c.producer, c.exchange.value, c.consumer) for c in plan.channels]


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3]).name("numbers")


def test_steps_without_an_exchange_between_them_share_a_stage() -> None:
    env = environment()
    numbers(env).map(str).filter(bool).flat_map(list).print()
    assert names(plan_of(env)) == ["numbers -> Map -> Filter -> FlatMap -> Print to Std. Out"]


def test_key_by_ends_the_chain_and_later_steps_are_chained_to_the_keyed_one() -> None:
    env = environment()
    numbers(env).map(str).key_by(len).reduce(max).map(str).print()
    plan = plan_of(env)
    assert names(plan) == ["numbers -> Map", "Reduce -> Map -> Print to Std. Out"]
    assert exchanges(plan) == [(0, "hash", 1)]


@pytest.mark.parametrize("how", ["rebalance", "rescale", "shuffle", "broadcast", "global_"])
def test_an_explicit_exchange_cuts_the_chain(how: str) -> None:
    env = environment()
    getattr(numbers(env), how)().map(str).print()
    plan = plan_of(env)
    assert exchanges(plan) == [(0, how.rstrip("_"), 1)]


def test_forward_keeps_the_chain() -> None:
    env = environment()
    numbers(env).forward().map(str).print()
    assert len(plan_of(env).stages) == 1


def test_a_change_of_parallelism_rebalances() -> None:
    env = environment(2)
    numbers(env).map(str).print()
    plan = plan_of(env)
    assert names(plan) == ["numbers", "Map -> Print to Std. Out"]
    assert exchanges(plan) == [(0, "rebalance", 1)]


def test_forward_between_unequal_parallelism_is_refused() -> None:
    env = environment(2)
    numbers(env).forward().map(str).print()
    with pytest.raises(InvalidJobError, match=r"'numbers' \(parallelism 1\) to 'Map'.*rebalance"):
        plan_of(env)


def test_a_union_reads_a_channel_per_stream() -> None:
    env = environment()
    left, right = numbers(env).map(str), numbers(env).map(str)
    left.union(right).map(len).print()
    plan = plan_of(env)
    assert exchanges(plan) == [(0, "forward", 2), (1, "forward", 2)]
    assert names(plan)[2] == "Map -> Print to Std. Out"


def test_a_diamond_is_one_producer_and_one_consumer() -> None:
    env = environment()
    source = numbers(env)
    source.map(str).union(source.map(repr)).print()
    plan = plan_of(env)
    assert names(plan) == ["numbers -> (Map, Map)", "Print to Std. Out"]
    assert exchanges(plan) == [(0, "forward", 1), (0, "forward", 1)]


def test_a_stateful_step_with_branches_and_sinks_is_in_one_stage_once() -> None:
    env = environment()
    counts = numbers(env).key_by(str).reduce(max).name("counts")
    counts.print()
    counts.map(str).sink_to(DiscardingSink())
    counts.filter(bool).rebalance().print()
    plan = plan_of(env)
    holders = [s for s in plan.stages if any(n.name == "counts" for n in s.nodes)]
    assert len(holders) == 1
    assert [n.name for n in holders[0].nodes].count("counts") == 1
    assert len(holders[0].nodes) == 5


def test_a_step_may_refuse_to_be_chained() -> None:
    env = environment()
    numbers(env).map(str).start_new_chain().map(len).disable_chaining().print()
    assert names(plan_of(env)) == ["numbers", "Map", "Map", "Print to Std. Out"]
    env.disable_operator_chaining()
    numbers(env).map(str).print()
    assert names(plan_of(env)) == ["numbers", "Map", "Print to Std. Out"]


def test_a_job_without_a_sink_is_refused() -> None:
    env = environment()
    numbers(env).map(str)
    with pytest.raises(InvalidJobError, match="no sink"):
        plan_of(env)


def test_a_duplicate_uid_is_refused_with_both_call_sites() -> None:
    env = environment()
    numbers(env).map(str).uid("same").map(len).uid("same").print()
    with pytest.raises(DuplicateUidError) as caught:
        plan_of(env)
    text = str(caught.value)
    assert "'same' is used twice" in text
    assert text.count("test_plan.py:") == 2


def test_parallelism_above_the_key_groups_is_refused() -> None:
    env = environment(4).set_max_parallelism(2)
    numbers(env).key_by(str).reduce(max).print()
    with pytest.raises(InvalidJobError, match="parallelism 4 is above its max parallelism 2"):
        plan_of(env)


def test_streams_of_different_declared_types_do_not_unite() -> None:
    env = environment()
    texts = numbers(env).map(str, Types.STRING())
    counts = numbers(env).map(int, Types.INT())
    with pytest.raises(InvalidJobError, match="String, Integer"):
        texts.union(counts)
    texts.union(numbers(env)).print()
    assert plan_of(env).stages[-1].head.input_type is None
