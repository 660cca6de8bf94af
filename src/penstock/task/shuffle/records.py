"""Shuffle records: what Spark's shuffle carries inside the job of a pipelined region.

A slice for a subtask of a later level is one or more records. A task's acknowledgement is a record
too, because a task upstream of a shuffle has no other way to the driver. The shuffle may deliver
records in any order, so each says where its bytes belong.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from tempfile import SpooledTemporaryFile

import pyarrow as pa

from penstock.channel.segment import DecodedSlice, SliceWriter, decode_slice
from penstock.errors import CorruptSegmentError
from penstock.graph.plan import Channel
from penstock.graph.regions import SubtaskSlot
from penstock.ids import ChannelId, StageId
from penstock.task.messages import Acknowledgement, decode_acknowledgement, encode

MAX_RECORD_BYTES = 8 << 20
"""A larger slice is split: Spark holds whole records in memory."""

MAX_MEMORY_BYTES = 32 << 20
"""Bytes of finished slices that a task keeps in memory; more spill to a temporary file."""


class ShuffleRecordKind(IntEnum):
    """What a shuffle record holds."""

    SLICE = 1
    ACKNOWLEDGEMENT = 2
    FAILURE = 3
    """The acknowledgement of a failed task: no later task needs to run."""


_HEADER = struct.Struct("<BHIIIIIII")


@dataclass(frozen=True, slots=True)
class ShuffleRecord:
    """Some bytes with their destination.

    An acknowledgement has its stage in place of the channel, and no destination.
    """

    kind: ShuffleRecordKind
    to: SubtaskSlot
    channel: int
    producer: int
    """A subtask of the stage that writes the channel."""
    payload: memoryview
    sequence: int = 0
    """Of the slice, among all that the producer wrote in this micro-batch."""
    piece: int = 0
    pieces: int = 1
    crc: int | None = None
    """Of the payload, as it was sent."""

    @property
    def position(self) -> tuple[int, int, int]:
        """Where its bytes belong among those of its channel."""
        return self.producer, self.sequence, self.piece

    def check(self) -> None:
        """Verify the payload; called by its consumer only, not by the levels in between.

        Raises:
            CorruptSegmentError: the payload is not what was sent.
        """
        if zlib.crc32(self.payload) != self.crc:
            name = f"shuffle record of channel {self.channel} from subtask {self.producer}"
            raise CorruptSegmentError(name, "checksum differs")

    def __bytes__(self) -> bytes:
        address = self.kind, self.to.level, self.to.partition, self.channel, self.producer
        place = self.sequence, self.piece, self.pieces
        head = _HEADER.pack(*address, *place, zlib.crc32(self.payload))
        return b"".join((head, self.payload))


def decode_shuffle_record(data: bytes) -> ShuffleRecord:
    """Decode what `bytes(record)` returned, without verifying its payload.

    Raises:
        CorruptSegmentError: there are too few bytes.
    """
    if len(data) < _HEADER.size:
        name = "shuffle record"
        raise CorruptSegmentError(name, f"it has {len(data)} bytes")
    kind, level, partition, channel, producer, *rest = _HEADER.unpack_from(data)
    payload = memoryview(data)[_HEADER.size :]
    slot = SubtaskSlot(level, partition)
    return ShuffleRecord(ShuffleRecordKind(kind), slot, channel, producer, payload, *rest)


def acknowledgement_record(stage: StageId, ack: Acknowledgement) -> ShuffleRecord:
    """Return an acknowledgement as a shuffle record."""
    kind = ShuffleRecordKind.ACKNOWLEDGEMENT if ack.failure is None else ShuffleRecordKind.FAILURE
    return ShuffleRecord(kind, SubtaskSlot(0, 0), stage, ack.subtask, memoryview(encode(ack)))


def decode_acknowledgement_record(data: bytes) -> tuple[StageId, Acknowledgement]:
    """Return the acknowledgement in a record, and its stage."""
    record = decode_shuffle_record(data)
    record.check()
    return StageId(record.channel), decode_acknowledgement(record.payload)


SlotOf = Callable[[StageId, int], SubtaskSlot]
"""Returns the slot of a subtask of a stage."""


class ShuffleOutput:
    """The slices that one task wrote for later levels, buffered until the task is done."""

    def __init__(self) -> None:
        self._spool = SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES)  # noqa: SIM115 - `records`
        self._slices: list[tuple[Channel, int, int]] = []

    def add(self, channel: Channel, consumer: int, data: pa.Buffer) -> None:
        """Buffer a slice for one of the channel's consumers."""
        self._spool.write(data)
        self._slices.append((channel, consumer, data.size))

    def records(self, producer: int, slot_of: SlotOf) -> Iterator[ShuffleRecord]:
        """Yield all slices as records, once, in the order in which they were written."""
        with self._spool as spool:
            spool.seek(0)
            for sequence, (channel, consumer, size) in enumerate(self._slices):
                to = slot_of(channel.consumer, consumer)
                address = ShuffleRecordKind.SLICE, to, channel.id, producer
                pieces = -(-size // MAX_RECORD_BYTES)
                for piece in range(pieces):
                    data = spool.read(min(MAX_RECORD_BYTES, size - piece * MAX_RECORD_BYTES))
                    yield ShuffleRecord(*address, memoryview(data), sequence, piece, pieces)


class ShuffleSliceWriter(SliceWriter):
    """Writes the slices of a channel that has no segment files."""

    def __init__(self, output: ShuffleOutput, channel: Channel) -> None:
        self._output = output
        self._channel = channel

    def _append(self, consumer: int, data: pa.Buffer, rows: int) -> None:
        self._output.add(self._channel, consumer, data)

    def finish(self) -> None:
        """Return None: no segment file was written."""


class ShuffleInput:
    """The records that arrived for one subtask."""

    def __init__(self) -> None:
        self._records: dict[int, list[ShuffleRecord]] = {}

    @property
    def size(self) -> int:
        """How many bytes have arrived."""
        return sum(len(r.payload) for records in self._records.values() for r in records)

    def add(self, record: ShuffleRecord) -> None:
        """Add a record of a slice; they may arrive in any order.

        Raises:
            CorruptSegmentError: its bytes have changed on the way.
        """
        record.check()
        self._records.setdefault(record.channel, []).append(record)

    def slices(self, channel: ChannelId) -> Iterator[DecodedSlice]:
        """Yield the slices of a channel: producer by producer, each in the order it wrote them.

        Raises:
            CorruptSegmentError: a piece of a slice is missing, or there twice.
        """
        mine = self._records.get(channel, [])
        mine.sort(key=lambda record: record.position)
        at = 0
        while at < len(mine):
            first = mine[at]
            pieces = mine[at : at + first.pieces]
            expected = [(first.producer, first.sequence, i) for i in range(first.pieces)]
            if [p.position for p in pieces] != expected:
                name = f"slice {first.sequence} of channel {channel} from {first.producer}"
                raise CorruptSegmentError(name, "a piece is missing or duplicated")
            at += first.pieces
            whole = pieces[0].payload if len(pieces) == 1 else b"".join(p.payload for p in pieces)
            yield decode_slice(pa.py_buffer(whole))


@dataclass(frozen=True, slots=True)
class ShuffleMessages:
    """What one task receives and sends by Spark's shuffle."""

    input: ShuffleInput = field(default_factory=ShuffleInput)
    output: ShuffleOutput = field(default_factory=ShuffleOutput)
