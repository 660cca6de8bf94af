from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.discarding_sink import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.graph.plan import Plan
from penstock.graph.regions import (
    PipelinedRegion,
    SubtaskSlot,
    Transport,
    pipelined_regions,
    slot_assignment,
)
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


def shuffled(build: Build) -> tuple[PipelinedRegion, ...]:
    return pipelined_regions(planned(build), Transport.SHUFFLE)


def members(regions: tuple[PipelinedRegion, ...]) -> list[list[int]]:
    return [[s.id for s in region.stages] for region in regions]


def keyed(stream: DataStream) -> DataStream:
    return stream.key_by(str).map(str)


def test_with_channel_exchange_every_stage_is_a_region() -> None:
    plan = planned(lambda env: keyed(keyed(numbers(env))))
    regions = pipelined_regions(plan, Transport.CHANNEL)
    assert members(regions) == [[0], [1], [2]]
    assert all(not region.internal_channels and len(region.levels) == 1 for region in regions)


def test_a_source_and_all_steps_after_it_are_one_region() -> None:
    (region,) = shuffled(lambda env: keyed(keyed(numbers(env))))
    assert members((region,)) == [[0, 1, 2]]
    assert region.levels == ((0,), (1,), (2,))
    assert region.internal_channels == {0, 1}
    assert region.outputs == ()


def test_a_diamond_is_one_region_and_its_end_is_a_level_after_the_longer_branch() -> None:
    def diamond(env: StreamExecutionEnvironment) -> DataStream:
        source = numbers(env)
        return keyed(source).union(source.map(str)).rebalance().map(str)

    (region,) = shuffled(diamond)
    assert region.levels == ((0,), (1,), (2,))
    assert {(c.producer, c.consumer) for s in region.stages for c in s.inputs} == {
        (0, 1),
        (1, 2),
        (0, 2),
    }


def test_branches_are_on_one_level() -> None:
    def branches(env: StreamExecutionEnvironment) -> DataStream:
        source = numbers(env)
        keyed(source).sink_to(DiscardingSink())
        return keyed(source)

    (region,) = shuffled(branches)
    assert region.levels == ((0,), (1, 2))


def test_a_stage_fed_by_two_regions_begins_its_own() -> None:
    regions = shuffled(lambda env: keyed(keyed(numbers(env)).union(keyed(numbers(env)))))
    assert [len(region.stages) for region in regions] == [2, 2, 1]
    last = regions[2]
    assert last.internal_channels == frozenset()
    assert {c.id for region in regions[:2] for c in region.outputs} == {
        c.id for c in last.head.inputs
    }


def test_a_decoupling_begins_a_region() -> None:
    regions = shuffled(lambda env: keyed(keyed(numbers(env)).decouple("own pace")))
    assert members(regions) == [[0, 1], [2, 3]]


def test_a_channel_with_pending_records_begins_a_region() -> None:
    plan = planned(lambda env: keyed(keyed(numbers(env))))
    regions = pipelined_regions(plan, Transport.SHUFFLE, logged=[ChannelId(1)])
    assert members(regions) == [[0, 1], [2]]
    assert [c.id for c in regions[0].outputs] == [1]


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
def test_regions_contain_every_stage_once_and_read_one_source_or_channels(plan: Plan) -> None:
    regions = pipelined_regions(plan, Transport.SHUFFLE)
    assert sorted(s for region in members(regions) for s in region) == [s.id for s in plan.stages]
    for region in regions:
        assert region.head.is_source or not region.internal_channels & {
            c.id for c in region.head.inputs
        }
        for stage in region.stages[1:]:
            assert not stage.is_source
            assert {c.id for c in stage.inputs} <= region.internal_channels
    between = {c.id for region in regions for c in region.outputs}
    internal_channels = {c for region in regions for c in region.internal_channels}
    assert between | internal_channels == {c.id for c in plan.channels}
    assert not between & internal_channels


@given(programs())
def test_records_only_ever_go_to_later_levels(plan: Plan) -> None:
    for region in pipelined_regions(plan, Transport.SHUFFLE):
        level = {stage: i for i, stages in enumerate(region.levels) for stage in stages}
        assert level[region.head.id] == 0
        for stage in region.stages[1:]:
            assert level[stage.id] == 1 + max(level[c.producer] for c in stage.inputs)


@given(programs())
def test_every_subtask_has_a_slot_and_every_slot_a_subtask(plan: Plan) -> None:
    for region in pipelined_regions(plan, Transport.SHUFFLE):
        slots = slot_assignment(region)
        assigned = [slots.slot_of(s.id, i) for s in region.stages for i in range(s.parallelism)]
        assert len(set(assigned)) == len(assigned)
        assert set(assigned) == {
            SubtaskSlot(level, partition)
            for level in range(len(region.levels))
            for partition in range(slots.width(level))
        }
        assert all(slots.slot_of(*slots.subtask_at(slot)) == slot for slot in assigned)


def test_a_stage_outside_the_region_has_no_slot() -> None:
    (region,) = shuffled(lambda env: keyed(numbers(env)))
    slots = slot_assignment(region)
    with pytest.raises(KeyError):
        slots.slot_of(region.head.outputs[0].consumer + 1, 0)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        slots.subtask_at(SubtaskSlot(0, 1))


def test_a_step_that_spark_runs_begins_a_stage_and_a_region() -> None:
    def native(env: StreamExecutionEnvironment) -> DataStream:
        rows = keyed(numbers(env))
        return rows._then(OperatorKind.NATIVE, "Transform", None, None).map(str)

    regions = shuffled(native)
    assert members(regions) == [[0, 1], [2]]
    assert [node.name for node in regions[-1].head.nodes][:2] == ["Transform", "Map"]
