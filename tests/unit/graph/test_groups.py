from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.discard import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.graph.groups import Group, Transport, group_stages
from penstock.graph.plan import Plan
from penstock.graph.seating import Seat, seating
from penstock.graph.transformation import OperatorKind
from penstock.ids import ChannelId
from tests.unit.support import environment, plan_of


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3])


Build = Callable[[StreamExecutionEnvironment], DataStream]


def planned(build: Build) -> Plan:
    env = environment()
    build(env).sink_to(DiscardingSink())
    return plan_of(env)


def shuffled(build: Build) -> tuple[Group, ...]:
    return group_stages(planned(build), Transport.SHUFFLE)


def members(groups: tuple[Group, ...]) -> list[list[int]]:
    return [[s.id for s in group.stages] for group in groups]


def keyed(stream: DataStream) -> DataStream:
    return stream.key_by(str).map(str)


def test_with_channels_every_stage_is_a_group() -> None:
    plan = planned(lambda env: keyed(keyed(numbers(env))))
    groups = group_stages(plan, Transport.CHANNEL)
    assert members(groups) == [[0], [1], [2]]
    assert all(not group.inner and len(group.levels) == 1 for group in groups)


def test_a_source_and_all_that_follows_it_are_one_group() -> None:
    (group,) = shuffled(lambda env: keyed(keyed(numbers(env))))
    assert members((group,)) == [[0, 1, 2]]
    assert group.levels == ((0,), (1,), (2,))
    assert group.inner == {0, 1}
    assert group.outputs == ()


def test_a_diamond_is_one_group_and_its_end_waits_for_the_longer_way() -> None:
    def diamond(env: StreamExecutionEnvironment) -> DataStream:
        source = numbers(env)
        return keyed(source).union(source.map(str)).rebalance().map(str)

    (group,) = shuffled(diamond)
    assert group.levels == ((0,), (1,), (2,))
    assert {(c.producer, c.consumer) for s in group.stages for c in s.inputs} == {
        (0, 1),
        (1, 2),
        (0, 2),
    }


def test_branches_are_on_one_level() -> None:
    def branches(env: StreamExecutionEnvironment) -> DataStream:
        source = numbers(env)
        keyed(source).sink_to(DiscardingSink())
        return keyed(source)

    (group,) = shuffled(branches)
    assert group.levels == ((0,), (1, 2))


def test_what_two_groups_feed_is_a_group_behind_channels() -> None:
    groups = shuffled(lambda env: keyed(keyed(numbers(env)).union(keyed(numbers(env)))))
    assert [len(group.stages) for group in groups] == [2, 2, 1]
    last = groups[2]
    assert last.inner == frozenset()
    assert {c.id for group in groups[:2] for c in group.outputs} == {c.id for c in last.head.inputs}


def test_a_decoupling_begins_a_group() -> None:
    groups = shuffled(lambda env: keyed(keyed(numbers(env)).decouple("own pace")))
    assert members(groups) == [[0, 1], [2, 3]]


def test_a_channel_in_which_something_waits_begins_a_group() -> None:
    plan = planned(lambda env: keyed(keyed(numbers(env))))
    groups = group_stages(plan, Transport.SHUFFLE, logged=[ChannelId(1)])
    assert members(groups) == [[0, 1], [2]]
    assert [c.id for c in groups[0].outputs] == [1]


@st.composite
def programs(draw: st.DrawFn) -> Plan:
    """Some sources, then steps over one or two of the streams before them."""
    env = environment(draw(st.integers(1, 3)))
    streams = [numbers(env) for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(1, 6))):
        stream = draw(st.sampled_from(streams))
        if draw(st.booleans()):
            stream = stream.union(draw(st.sampled_from(streams)))
        ways = [keyed, lambda s: s.map(str), lambda s: s.rebalance().map(str), DataStream.decouple]
        streams.append(draw(st.sampled_from(ways))(stream))
    for stream in streams:
        stream.sink_to(DiscardingSink())
    return plan_of(env)


@given(programs())
def test_groups_hold_every_stage_once_and_read_one_source_or_channels(plan: Plan) -> None:
    groups = group_stages(plan, Transport.SHUFFLE)
    assert sorted(s for group in members(groups) for s in group) == [s.id for s in plan.stages]
    for group in groups:
        assert group.head.is_source or not group.inner & {c.id for c in group.head.inputs}
        for stage in group.stages[1:]:
            assert not stage.is_source
            assert {c.id for c in stage.inputs} <= group.inner
    between = {c.id for group in groups for c in group.outputs}
    inner = {c for group in groups for c in group.inner}
    assert between | inner == {c.id for c in plan.channels}
    assert not between & inner


@given(programs())
def test_records_only_ever_go_to_later_levels(plan: Plan) -> None:
    for group in group_stages(plan, Transport.SHUFFLE):
        level = {stage: i for i, stages in enumerate(group.levels) for stage in stages}
        assert level[group.head.id] == 0
        for stage in group.stages[1:]:
            assert level[stage.id] == 1 + max(level[c.producer] for c in stage.inputs)


@given(programs())
def test_every_subtask_has_a_seat_and_every_seat_a_subtask(plan: Plan) -> None:
    for group in group_stages(plan, Transport.SHUFFLE):
        seats = seating(group)
        taken = [seats.seat(s.id, i) for s in group.stages for i in range(s.parallelism)]
        assert len(set(taken)) == len(taken)
        assert set(taken) == {
            Seat(level, partition)
            for level in range(len(group.levels))
            for partition in range(seats.width(level))
        }
        assert all(seats.seat(*seats.sitting(seat)) == seat for seat in taken)


def test_who_is_not_there_has_no_seat() -> None:
    (group,) = shuffled(lambda env: keyed(numbers(env)))
    seats = seating(group)
    with pytest.raises(KeyError):
        seats.seat(group.head.outputs[0].consumer + 1, 0)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        seats.sitting(Seat(0, 1))


def test_a_step_that_spark_runs_begins_a_stage_and_a_group() -> None:
    def native(env: StreamExecutionEnvironment) -> DataStream:
        rows = keyed(numbers(env))
        return rows._then(OperatorKind.NATIVE, "Transform", None, None).map(str)

    groups = shuffled(native)
    assert members(groups) == [[0, 1], [2]]
    assert [node.name for node in groups[-1].head.nodes][:2] == ["Transform", "Map"]
