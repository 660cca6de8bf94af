"""Records of two inputs in one task: each stays with its key and comes to its own method."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.channel.columns import decoder_for
from penstock.channel.segment import SegmentWriter, read_slices
from penstock.common import Types
from penstock.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
)
from penstock.graph.plan import Channel
from penstock.graph.transformation import Exchange, OperatorKind, Partitioning
from penstock.ids import ChannelId, StageId
from penstock.state.backends.refs import StateLocation, StateRef
from penstock.state.backends.registry import create_state_backend
from penstock.state.key_groups import KeyGroupRange, key_of
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec
from penstock.task.heads.context import STRIDE
from penstock.task.heads.inputs import InputSlice, KeyedInput, read_keyed, sort_by_key
from penstock.task.heads.keyed import KeyedHead
from penstock.task.messages import MicroBatchTime, NextTimers
from penstock.task.partitioning.key_table import key_group_of
from penstock.task.partitioning.partitioners import KeyGroupPartitioner, PartitionerContext
from penstock.task.time.timer_service import InternalTimerService, RecordTime
from tests.unit.support import environment, plan_of

GROUPS = 12
CODEC = KeyCodec(Types.STRING())
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def parts(directory: Path, chunks: list[tuple[int, list[Any]]]) -> list[InputSlice]:
    """Write and read back some chunks; records of the second input are their own keys."""
    found = []
    for i, (input_, records) in enumerate(chunks):
        type_info, select = (PAIR, first) if input_ == 0 else (Types.STRING(), same)
        partitioning = Partitioning(Exchange.HASH, select, Types.STRING())
        stages = StageId(0), StageId(1)
        channel = Channel(ChannelId(i), *stages, 1, partitioning, 1, GROUPS, input_, type_info)
        path = directory / f"{i}.arrow"
        partitioner = KeyGroupPartitioner(
            PartitionerContext(channel, SegmentWriter(path, 1), "step", RecordTime())
        )
        partitioner.push_many(records)
        segment = partitioner.finish()
        decode = decoder_for(type_info)
        for part in read_slices(path, segment.slices[0] if segment else []):
            found.append(InputSlice(part, decode, channel.input))
    return found


def first(pair: tuple[str, int]) -> str:
    return pair[0]


def same(text: str) -> str:
    return text


def records_of(given: KeyedInput) -> list[tuple[str, int, Any]]:
    """The key, the input and the value of each record."""
    keys = [CODEC.decode(key_of(k)) for k in given.routed_keys]
    return [
        (keys[number], input_, value)
        for number, input_, value in zip(given.numbers, given.inputs, given.values, strict=True)
    ]


CHUNKS = st.lists(
    st.one_of(
        st.tuples(
            st.just(0),
            st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 99)), max_size=6),
        ),
        st.tuples(st.just(1), st.lists(st.sampled_from("abcdefg"), max_size=6)),
    ),
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(CHUNKS, st.booleans(), st.tuples(st.integers(0, GROUPS), st.integers(0, GROUPS)))
def test_a_record_keeps_its_key_and_its_input(
    chunks: list[tuple[int, list[Any]]], sorted_by_key: bool, groups: tuple[int, int]
) -> None:
    wanted = KeyGroupRange(min(groups), max(groups))
    expected = [(r if i else first(r), i, r) for i, records in chunks for r in records]
    with tempfile.TemporaryDirectory() as directory:
        gathered = parts(Path(directory), chunks)
        everything, some = (read_keyed(gathered, CODEC, g) for g in (None, wanted))
        assert [v for part in gathered for v in part.values()] == [r for _, _, r in expected]
    group_of = {CODEC.decode(key_of(k)): key_group_of(k) for k in everything.routed_keys}
    if sorted_by_key:
        everything, some = map(sort_by_key, (everything, some))
        expected.sort(key=lambda one: everything_rank(everything, one[0]))
    assert records_of(everything) == expected
    assert records_of(some) == [one for one in expected if group_of[one[0]] in wanted]


def everything_rank(given: KeyedInput, key: str) -> bytes:
    return next(k for k in given.routed_keys if CODEC.decode(key_of(k)) == key)


class Marked(CoMapFunction[Any, Any, Any], CoFlatMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return (1, value)

    def map2(self, value: Any) -> Any:
        return (2, value)

    def flat_map1(self, value: Any) -> Iterable[Any]:
        yield (1, value)

    def flat_map2(self, value: Any) -> Iterable[Any]:
        yield (2, value)


class MarkedProcess(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield (1, value)

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield (2, value)


@pytest.mark.parametrize(
    "kind",
    [OperatorKind.KEYED_CO_MAP, OperatorKind.KEYED_CO_FLAT_MAP, OperatorKind.KEYED_CO_PROCESS],
)
def test_partitioners_are_flushed_between_strides(tmp_path: Path, kind: OperatorKind) -> None:
    env = environment()
    one = env.from_collection(["a"]).key_by(same, Types.STRING())
    connected = one.connect(one)
    if kind is OperatorKind.KEYED_CO_PROCESS:
        connected.process(MarkedProcess()).print()
    elif kind is OperatorKind.KEYED_CO_MAP:
        connected.map(Marked()).print()
    else:
        connected.flat_map(Marked()).print()
    head = plan_of(env).stages[-1].head
    assert head.kind is kind
    count = 2 * STRIDE + 5
    given = KeyedInput([b"\0\0a"], [0] * count, range(count), bytes(i % 2 for i in range(count)))
    states = KeyedStates("step", CODEC)
    store = create_state_backend("memory").open(
        StateLocation(tmp_path, tmp_path), StateRef(version=0)
    )
    states.bind(store, given.routed_keys)
    made: list[Any] = []
    seen: list[int] = []
    groups = KeyGroupRange(0, GROUPS)
    timers = InternalTimerService(states, NextTimers(), groups, RecordTime())
    context: Any = SimpleNamespace(
        node=head,
        instruction=SimpleNamespace(time=MicroBatchTime()),
        task=SimpleNamespace(batch_mode=False),
        functions=SimpleNamespace(broadcast=None),
        chain=SimpleNamespace(counts=SimpleNamespace(emitted=0)),
    )
    keyed_head = KeyedHead(context, states, made.append, timers)
    keyed_head.run(given, lambda: seen.append(len(made)))
    assert made == [(i % 2 + 1, i) for i in range(count)]
    assert seen == [STRIDE, 2 * STRIDE, count]
