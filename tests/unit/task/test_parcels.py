from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channel.columns import decoder_for, encoder_for
from penstock.errors import CorruptSegmentError
from penstock.graph.plan import Channel
from penstock.graph.seating import Seat
from penstock.graph.transformation import Exchange, Partitioning
from penstock.ids import ChannelId, StageId
from penstock.task import parcels
from penstock.task.messages import Acknowledgement
from penstock.task.parcels import (
    Inbox,
    Kind,
    Outbox,
    Parcel,
    acknowledged,
    open_acknowledgement,
    open_parcel,
)


def channel(number: int) -> Channel:
    partitioning = Partitioning(Exchange.REBALANCE)
    return Channel(ChannelId(number), StageId(0), StageId(1), 1, partitioning, 2, 12)


def seat(stage: StageId, subtask: int) -> Seat:
    return Seat(stage, subtask)


def sent(producer: int, *slices: tuple[int, int, list[Any]]) -> list[bytes]:
    """Slices (channel, consumer, records) as they leave a task."""
    outbox = Outbox()
    for number, consumer, records in slices:
        outbox.writer(channel(number)).write(consumer, encoder_for(None)(records))
    return [bytes(parcel) for parcel in outbox.parcels(producer, seat)]


def received(number: int, mail: list[bytes]) -> list[Any]:
    inbox = Inbox()
    for data in mail:
        inbox.add(open_parcel(data))
    decode = decoder_for(None)
    parts = inbox.parts(ChannelId(number))
    return [record for part in parts for record in decode(part.layout, part.columns)]


@given(
    st.sampled_from(Kind),
    st.integers(0, 2**16 - 1),
    st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6),
    st.binary(max_size=50),
)
def test_what_is_opened_is_what_was_sent(
    kind: Kind, level: int, numbers: list[int], payload: bytes
) -> None:
    partition, number, producer, *place = numbers
    parcel = Parcel(kind, Seat(level, partition), number, producer, memoryview(payload), *place)
    opened = open_parcel(bytes(parcel))
    opened.check()
    assert (opened.kind, opened.to, opened.channel, opened.place) == (
        kind,
        Seat(level, partition),
        number,
        (producer, place[0], place[1]),
    )
    assert (opened.pieces, bytes(opened.payload)) == (place[2], payload)


def test_records_come_by_channel_then_by_subtask_then_as_they_were_written() -> None:
    mail = [
        *sent(0, (7, 0, ["a", "b"]), (8, 0, ["other"]), (7, 0, ["c"])),
        *sent(1, (7, 0, ["d"]), (7, 0, ["e", "f"])),
    ]
    random.Random(3).shuffle(mail)
    assert received(7, mail) == ["a", "b", "c", "d", "e", "f"]
    assert received(8, mail) == ["other"]
    assert received(9, mail) == []


def test_parcels_go_to_the_seats_of_the_consumers() -> None:
    mail = sent(0, (7, 0, ["a"]), (7, 1, ["b"]))
    assert [open_parcel(data).to for data in mail] == [Seat(1, 0), Seat(1, 1)]


def test_a_large_slice_travels_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "PIECE", 100)
    records = list(range(500))
    mail = sent(0, (7, 0, records), (7, 0, ["end"]))
    assert len(mail) > 40
    assert max(len(data) for data in mail) < 150
    random.Random(3).shuffle(mail)
    assert received(7, mail) == [*records, "end"]


def test_slices_that_are_too_many_for_memory_wait_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parcels, "SPOOL", 1000)
    mail = sent(0, *((7, 0, [number] * 100) for number in range(20)))
    assert received(7, mail) == [number for number in range(20) for _ in range(100)]


def test_a_piece_that_is_missing_or_there_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parcels, "PIECE", 100)
    mail = sent(3, (7, 0, list(range(100))))
    for wrong in ([*mail[:2], *mail[3:]], [*mail, mail[2]], mail[:-1], mail[1:]):
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
        open_parcel(b"abc")


@pytest.mark.parametrize("failure", [None, b"why"])
def test_an_acknowledgement_travels_with_its_stage(failure: bytes | None) -> None:
    ack = Acknowledgement(2, "name", records_in=5, failure=failure)
    data = bytes(acknowledged(StageId(4), ack))
    assert open_acknowledgement(data) == (4, ack)
    assert open_parcel(data).kind is (Kind.FAILURE if failure else Kind.ACKNOWLEDGEMENT)
