"""Parcels: what travels through the engine's shuffle inside a group's job.

A slice for a subtask of a later level goes in one or more parcels; a task's acknowledgement goes
in one too, because a task in front of a shuffle has no other way to the driver. The shuffle may
bring parcels in any order, so each says where its bytes belong.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from tempfile import SpooledTemporaryFile

import pyarrow as pa

from penstock.channel.columns import Columns
from penstock.channel.segment import SegmentPart, decode_slice, encode_slice
from penstock.errors import CorruptSegmentError
from penstock.graph.plan import Channel
from penstock.graph.seating import Seat
from penstock.ids import ChannelId, StageId
from penstock.task.messages import Acknowledgement, decode_acknowledgement, encode

PIECE = 8 << 20
"""Most bytes in one parcel: the engine holds whole parcels in memory."""

SPOOL = 32 << 20
"""Bytes of finished slices that a task keeps in memory; the rest waits in a temporary file."""


class Kind(IntEnum):
    """What a parcel holds."""

    SLICE = 1
    ACKNOWLEDGEMENT = 2
    FAILURE = 3
    """The acknowledgement of a task that failed: nobody who sees it needs to work."""


_HEADER = struct.Struct("<BHIIIIIII")


@dataclass(frozen=True, slots=True)
class Parcel:
    """Some bytes with an address.

    An acknowledgement has the stage for its channel, and is addressed to nobody.
    """

    kind: Kind
    to: Seat
    channel: int
    producer: int
    """A subtask of the stage that fills the channel."""
    payload: memoryview
    sequence: int = 0
    """Of the slice, among all that the producer made in this micro-batch."""
    piece: int = 0
    pieces: int = 1
    crc: int | None = None
    """Of the payload, as it was sent."""

    @property
    def place(self) -> tuple[int, int, int]:
        """Where its bytes belong among those of its channel."""
        return self.producer, self.sequence, self.piece

    def check(self) -> None:
        """Prove the payload; called by whom it is for.

        Raises:
            CorruptSegmentError: it is not what was sent.
        """
        if zlib.crc32(self.payload) != self.crc:
            where = f"a parcel of channel {self.channel} from subtask {self.producer}"
            raise CorruptSegmentError(where, "checksum differs")

    def __bytes__(self) -> bytes:
        head = _HEADER.pack(
            self.kind,
            self.to.level,
            self.to.partition,
            self.channel,
            self.producer,
            self.sequence,
            self.piece,
            self.pieces,
            zlib.crc32(self.payload),
        )
        return b"".join((head, self.payload))


def open_parcel(data: bytes) -> Parcel:
    """Read what `bytes(parcel)` wrote; its payload is not looked at.

    Raises:
        CorruptSegmentError: it is too short.
    """
    if len(data) < _HEADER.size:
        where = "a parcel of the shuffle"
        raise CorruptSegmentError(where, f"it has {len(data)} bytes")
    kind, level, partition, *facts = _HEADER.unpack_from(data)
    channel, producer, sequence, piece, pieces, crc = facts
    return Parcel(
        Kind(kind),
        Seat(level, partition),
        channel,
        producer,
        memoryview(data)[_HEADER.size :],
        sequence,
        piece,
        pieces,
        crc,
    )


def acknowledged(stage: StageId, ack: Acknowledgement) -> Parcel:
    """Pack an acknowledgement."""
    kind = Kind.ACKNOWLEDGEMENT if ack.failure is None else Kind.FAILURE
    return Parcel(kind, Seat(0, 0), stage, ack.subtask, memoryview(encode(ack)))


def open_acknowledgement(data: bytes) -> tuple[StageId, Acknowledgement]:
    """Read an acknowledgement, and which stage it is of."""
    parcel = open_parcel(data)
    parcel.check()
    return StageId(parcel.channel), decode_acknowledgement(parcel.payload)


SeatOf = Callable[[StageId, int], Seat]
"""Says where a subtask of a stage sits."""


class Outbox:
    """What one task has for the subtasks behind it, kept until the task is done."""

    def __init__(self) -> None:
        self._spool = SpooledTemporaryFile(max_size=SPOOL)  # noqa: SIM115 - closed by `parcels`
        self._slices: list[tuple[Channel, int, int]] = []

    def writer(self, channel: Channel) -> OutboxWriter:
        """Return what an emitter writes into."""
        return OutboxWriter(self, channel)

    def add(self, channel: Channel, consumer: int, data: pa.Buffer) -> None:
        """Keep a slice for one of the channel's consumers."""
        self._spool.write(data)
        self._slices.append((channel, consumer, data.size))

    def parcels(self, producer: int, seat: SeatOf) -> Iterator[Parcel]:
        """Yield everything, once, in the order in which it was written."""
        with self._spool as spool:
            spool.seek(0)
            for sequence, (channel, consumer, size) in enumerate(self._slices):
                pieces = -(-size // PIECE)
                for piece in range(pieces):
                    data = spool.read(min(PIECE, size - piece * PIECE))
                    yield Parcel(
                        Kind.SLICE,
                        seat(channel.consumer, consumer),
                        channel.id,
                        producer,
                        memoryview(data),
                        sequence,
                        piece,
                        pieces,
                    )


class OutboxWriter:
    """Stands in for the writer of a segment file where there is no file."""

    def __init__(self, outbox: Outbox, channel: Channel) -> None:
        self._outbox = outbox
        self._channel = channel

    def write(
        self,
        consumer: int,
        columns: Columns,
        key: pa.Array | None = None,
        times: pa.Array | None = None,
    ) -> None:
        """Keep records for one consumer, with their keys and event times if they have some."""
        data, _ = encode_slice(columns, key, times)
        self._outbox.add(self._channel, consumer, data)

    def finish(self) -> None:
        """Return nothing: there is no segment to be told of."""


class Inbox:
    """What has come for one subtask, put in order."""

    def __init__(self) -> None:
        self._parcels: dict[int, list[Parcel]] = {}

    def add(self, parcel: Parcel) -> None:
        """Take a parcel with a slice, in whatever order they come.

        Raises:
            CorruptSegmentError: its bytes have changed on the way.
        """
        parcel.check()
        self._parcels.setdefault(parcel.channel, []).append(parcel)

    def parts(self, channel: ChannelId) -> Iterator[SegmentPart]:
        """Yield what a channel brought: subtask by subtask, each in the order it wrote in.

        Raises:
            CorruptSegmentError: a piece of a slice is missing, or there twice.
        """
        mine = self._parcels.get(channel, [])
        mine.sort(key=lambda parcel: parcel.place)
        at = 0
        while at < len(mine):
            first = mine[at]
            pieces = mine[at : at + first.pieces]
            expected = [(first.producer, first.sequence, i) for i in range(first.pieces)]
            if [p.place for p in pieces] != expected:
                where = f"slice {first.sequence} of channel {channel} from {first.producer}"
                raise CorruptSegmentError(where, "not all of its pieces are there")
            at += first.pieces
            whole = pieces[0].payload if len(pieces) == 1 else b"".join(p.payload for p in pieces)
            yield decode_slice(pa.py_buffer(whole))


@dataclass(frozen=True, slots=True)
class Mail:
    """What goes in and out of one task by the engine's shuffle."""

    inbox: Inbox = field(default_factory=Inbox)
    outbox: Outbox = field(default_factory=Outbox)
