from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channel.columns import decoder_for, encoder_for
from penstock.errors import CorruptSegmentError
from penstock.graph.plan import Channel
from penstock.graph.regions import SubtaskSlot
from penstock.graph.transformation import Exchange, Partitioning
from penstock.ids import ChannelId, StageId
from penstock.task.messages import Acknowledgement
from penstock.task.shuffle import records as shuffle_records
from penstock.task.shuffle.records import (
    ShuffleInput,
    ShuffleOutput,
    ShuffleRecord,
    ShuffleRecordKind,
    ShuffleSliceWriter,
    acknowledgement_record,
    decode_acknowledgement_record,
    decode_shuffle_record,
)


def channel(number: int) -> Channel:
    partitioning = Partitioning(Exchange.REBALANCE)
    return Channel(ChannelId(number), StageId(0), StageId(1), 1, partitioning, 2, 12)


def slot_of(stage: StageId, subtask: int) -> SubtaskSlot:
    return SubtaskSlot(stage, subtask)


def sent(producer: int, *slices: tuple[int, int, list[Any]]) -> list[bytes]:
    """Slices (channel, consumer, records) as they leave a task."""
    output = ShuffleOutput()
    for number, consumer, records in slices:
        ShuffleSliceWriter(output, channel(number)).write(consumer, encoder_for(None)(records))
    return [bytes(record) for record in output.records(producer, slot_of)]


def received(number: int, rows: list[bytes]) -> list[Any]:
    shuffle_input = ShuffleInput()
    for data in rows:
        shuffle_input.add(decode_shuffle_record(data))
    decode = decoder_for(None)
    parts = shuffle_input.slices(ChannelId(number))
    return [record for part in parts for record in decode(part.layout, part.columns)]


@given(
    st.sampled_from(ShuffleRecordKind),
    st.integers(0, 2**16 - 1),
    st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6),
    st.binary(max_size=50),
)
def test_a_decoded_record_equals_the_sent_one(
    kind: ShuffleRecordKind, level: int, numbers: list[int], payload: bytes
) -> None:
    partition, number, producer, *place = numbers
    record = ShuffleRecord(
        kind, SubtaskSlot(level, partition), number, producer, memoryview(payload), *place
    )
    opened = decode_shuffle_record(bytes(record))
    opened.check()
    assert (opened.kind, opened.to, opened.channel, opened.position) == (
        kind,
        SubtaskSlot(level, partition),
        number,
        (producer, place[0], place[1]),
    )
    assert (opened.pieces, bytes(opened.payload)) == (place[2], payload)


def test_slices_are_read_by_channel_then_by_producer_then_in_write_order() -> None:
    rows = [
        *sent(0, (7, 0, ["a", "b"]), (8, 0, ["other"]), (7, 0, ["c"])),
        *sent(1, (7, 0, ["d"]), (7, 0, ["e", "f"])),
    ]
    random.Random(3).shuffle(rows)
    assert received(7, rows) == ["a", "b", "c", "d", "e", "f"]
    assert received(8, rows) == ["other"]
    assert received(9, rows) == []


def test_records_go_to_the_slots_of_the_consumers() -> None:
    rows = sent(0, (7, 0, ["a"]), (7, 1, ["b"]))
    assert [decode_shuffle_record(data).to for data in rows] == [
        SubtaskSlot(1, 0),
        SubtaskSlot(1, 1),
    ]


def test_a_large_slice_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle_records, "MAX_RECORD_BYTES", 100)
    records = list(range(500))
    rows = sent(0, (7, 0, records), (7, 0, ["end"]))
    assert len(rows) > 40
    assert max(len(data) for data in rows) < 150
    random.Random(3).shuffle(rows)
    assert received(7, rows) == [*records, "end"]


def test_slices_that_exceed_the_memory_limit_spill_to_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shuffle_records, "MAX_MEMORY_BYTES", 1000)
    rows = sent(0, *((7, 0, [number] * 100) for number in range(20)))
    assert received(7, rows) == [number for number in range(20) for _ in range(100)]


def test_a_piece_that_is_missing_or_there_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shuffle_records, "MAX_RECORD_BYTES", 100)
    rows = sent(3, (7, 0, list(range(100))))
    for wrong in ([*rows[:2], *rows[3:]], [*rows, rows[2]], rows[:-1], rows[1:]):
        with pytest.raises(CorruptSegmentError, match="slice 0 of channel 7 from 3"):
            received(7, wrong)


@pytest.mark.parametrize("at", [-1, -40])
def test_a_changed_byte_is_refused(at: int) -> None:
    (data,) = sent(2, (7, 0, ["a" * 100]))
    changed = bytearray(data)
    changed[at] ^= 1
    with pytest.raises(CorruptSegmentError, match="channel 7 from subtask 2"):
        received(7, [bytes(changed)])


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(CorruptSegmentError, match="3 bytes"):
        decode_shuffle_record(b"abc")


@pytest.mark.parametrize("failure", [None, b"why"])
def test_an_acknowledgement_record_names_its_stage(failure: bytes | None) -> None:
    ack = Acknowledgement(2, "name", records_in=5, failure=failure)
    data = bytes(acknowledgement_record(StageId(4), ack))
    assert decode_acknowledgement_record(data) == (4, ack)
    assert decode_shuffle_record(data).kind is (
        ShuffleRecordKind.FAILURE if failure else ShuffleRecordKind.ACKNOWLEDGEMENT
    )
