from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.channel.columns import decoder_for
from penstock.channel.segment import SegmentWriter, read_slices
from penstock.common import Types
from penstock.common.typeinfo import TypeInformation
from penstock.errors import StepError
from penstock.graph.plan import Channel
from penstock.graph.transformation import Exchange, Partitioning
from penstock.ids import ChannelId, StageId
from penstock.state.keys import KeyCodec
from penstock.task.failure import StepFailed
from penstock.task.heads.inputs import InputSlice, read_keyed
from penstock.task.partitioning import partitioners
from penstock.task.partitioning.partitioners import (
    KeyGroupPartitioner,
    PartitionerContext,
    RebalancePartitioner,
    StreamPartitioner,
)
from penstock.task.time.timer_service import RecordTime

CONSUMERS = 3

AT = RecordTime()


def context(
    path: Path,
    partitioning: Partitioning,
    record_type: TypeInformation | None = None,
    step: str = "step",
    subtask: int = 0,
) -> PartitionerContext:
    stages = StageId(0), StageId(1)
    channel = Channel(ChannelId(0), *stages, 1, partitioning, CONSUMERS, 12, 0, record_type)
    return PartitionerContext(channel, SegmentWriter(path, CONSUMERS), step, RecordTime(), subtask)


def distributed(
    path: Path, exchange: Exchange, records: list[Any], type_info: TypeInformation | None = None
) -> list[list[Any]]:
    partitioner = RebalancePartitioner(context(path, Partitioning(exchange), type_info, subtask=1))
    return received(path, partitioner, records, type_info)


def received(
    path: Path,
    partitioner: StreamPartitioner,
    records: list[Any],
    type_info: TypeInformation | None,
) -> list[list[Any]]:
    for record in records:
        partitioner.push(record)
    segment = partitioner.finish()
    slices = segment.slices if segment else [[] for _ in range(CONSUMERS)]
    decode = decoder_for(type_info)
    return [
        [r for part in read_slices(path, mine) for r in decode(part.layout, part.columns)]
        for mine in slices
    ]


@pytest.mark.parametrize("exchange", [Exchange.REBALANCE, Exchange.RESCALE, Exchange.SHUFFLE])
def test_every_record_reaches_exactly_one_subtask(tmp_path: Path, exchange: Exchange) -> None:
    records = list(range(100))
    parts = distributed(tmp_path / "s", exchange, records)
    assert sorted(r for part in parts for r in part) == records
    assert all(part == sorted(part) and part for part in parts)


def test_rebalancing_is_even_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioners, "CHUNK", 4)
    partitioner = RebalancePartitioner(
        context(tmp_path / "s", Partitioning(Exchange.REBALANCE), step="step")
    )
    for record in range(30):
        partitioner.push(record)
        partitioner.flush_if_full()
    assert [len(p) for p in received(tmp_path / "s", partitioner, [], None)] == [10, 10, 10]


def test_broadcast_global_and_forward_reach_their_subtasks(tmp_path: Path) -> None:
    records = [1, 2, 3]
    assert distributed(tmp_path / "b", Exchange.BROADCAST, records) == [records, records, records]
    assert distributed(tmp_path / "g", Exchange.GLOBAL, records) == [records, [], []]
    assert distributed(tmp_path / "f", Exchange.FORWARD, records) == [[], records, []]


def keyed(
    path: Path,
    records: list[Any],
    select: Any,
    record_type: TypeInformation | None = None,
    key_type: TypeInformation | None = None,
) -> list[list[tuple[Any, Any]]]:
    partitioner = KeyGroupPartitioner(
        context(path, Partitioning(Exchange.HASH, select, key_type), record_type)
    )
    for record in records:
        partitioner.push(record)
    segment = partitioner.finish()
    decode, codec = decoder_for(record_type), KeyCodec(key_type)
    found = []
    for mine in segment.slices if segment else []:
        given = read_keyed((InputSlice(p, decode) for p in read_slices(path, mine)), codec, None)
        keys = [given.routed_keys[number] for number in given.numbers]
        found.append(list(zip(keys, given.values, strict=True)))
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers()), max_size=30))
def test_each_key_keeps_its_order_and_its_subtask(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("partitioner") / "s"
    parts = keyed(path, records, lambda r: r[0])
    values = [value for part in parts for _, value in part]
    assert Counter(values) == Counter(records)
    for key in "abcdefg":
        mine = [r for r in records if r[0] == key]
        found = [[v for _, v in part if v[0] == key] for part in parts]
        assert [h for h in found if h] == ([mine] if mine else [])


@pytest.mark.parametrize(
    ("records", "record_type", "key_type", "arrives"),
    [
        (["a", "b\0", ""], None, None, ["a", "b\0", ""]),
        ([1, 2**70], None, None, [1, 2**70]),
        ([1, 2], None, Types.DOUBLE(), [1, 2]),
        ([1, 2], Types.DOUBLE(), None, [1.0, 2.0]),
        ([1, 2], Types.LONG(), Types.LONG(), [1, 2]),
        (["a"], Types.STRING(), Types.STRING(), ["a"]),
    ],
)
def test_records_that_are_their_own_key_are_decoded_to_their_type(
    tmp_path: Path, records: list[Any], record_type: Any, key_type: Any, arrives: list[Any]
) -> None:
    parts = keyed(tmp_path / "s", records, lambda r: r, record_type, key_type)
    values = sorted((v for part in parts for _, v in part), key=repr)
    assert repr(values) == repr(sorted(arrives, key=repr))


@pytest.mark.parametrize("record_type", [Types.STRING(), Types.BYTE(), Types.BIG_DEC()])
def test_a_record_that_is_its_own_key_must_fit_its_type(
    tmp_path: Path, record_type: TypeInformation
) -> None:
    with pytest.raises(StepFailed) as caught:
        keyed(tmp_path / "s", [1000], lambda r: r, record_type)
    assert "does not match its declared type" in str(caught.value.error)


def test_a_record_changed_after_it_was_emitted_arrives_as_emitted(tmp_path: Path) -> None:
    partitioner = RebalancePartitioner(
        context(tmp_path / "s", Partitioning(Exchange.GLOBAL), step="step")
    )
    record = [1]
    partitioner.push(record)
    record.append(2)
    partitioner.push((record, "nested"))
    record.append(3)
    arrived, *_ = received(tmp_path / "s", partitioner, [], None)
    assert arrived == [[1], ([1, 2], "nested")]


def test_the_first_record_that_does_not_fit_is_named_with_its_step(tmp_path: Path) -> None:
    partitioner = RebalancePartitioner(
        context(tmp_path / "s", Partitioning(Exchange.GLOBAL), Types.INT(), step="Parse")
    )
    for record in (1, "two", "three"):
        partitioner.push(record)
    with pytest.raises(StepFailed) as caught:
        partitioner.finish()
    assert isinstance(caught.value.error, StepError)
    assert str(caught.value.error) == (
        "step 'Parse' stopped on record 'two': "
        "the record does not match its declared type Integer; got 'two'"
    )


def test_a_record_that_cannot_be_pickled_is_named_with_its_step(tmp_path: Path) -> None:
    partitioner = RebalancePartitioner(
        context(tmp_path / "s", Partitioning(Exchange.GLOBAL), step="Parse")
    )
    with pytest.raises(StepFailed) as caught:
        partitioner.push([threading.Lock()])
    assert "step 'Parse'" in str(caught.value.error)
    assert "cannot pickle '_thread.lock' object" in str(caught.value.error)
