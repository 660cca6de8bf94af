"""The log of a channel, which the driver keeps in memory.

It has one entry per published micro-batch of the producer, in order, with barriers and watermarks
between them and one entry for the end of input. Barriers still follow the end: a finished source
answers every checkpoint. The log is the consumer's input buffer: it is bounded, and an entry's
files are deleted once its consumer has published the micro-batch that read them.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.channel.segment import Segment
from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK
from penstock.ids import CheckpointId


class EntryKind(Enum):
    """What an entry of a channel's log is."""

    DATA = "data"
    BARRIER = "barrier"
    WATERMARK = "watermark"
    """A new watermark status without data."""
    END_OF_INPUT = "end of input"


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """The watermark of a stream, and whether it is idle."""

    watermark: int = MIN_WATERMARK
    """All later records have a later timestamp."""
    is_idle: bool = False
    """Whether the watermark of this stream is ignored."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log: data of a micro-batch, a barrier, a watermark, or the end of input."""

    kind: EntryKind
    segments: tuple[Segment, ...] = ()
    checkpoint: CheckpointId | None = None
    """Of a barrier: the checkpoint it belongs to."""
    watermark_status: WatermarkStatus | None = None
    """Of data and watermarks: the status of the stream after the entry."""

    @property
    def rows(self) -> int:
        """How many records the entry holds."""
        return sum(s.rows for s in self.segments)

    @property
    def size(self) -> int:
        """How many bytes the entry's files hold."""
        return sum(s.size for s in self.segments)


END_OF_INPUT = Entry(EntryKind.END_OF_INPUT, watermark_status=WatermarkStatus(MAX_WATERMARK))


def barrier(checkpoint: CheckpointId) -> Entry:
    """Return the barrier of a checkpoint."""
    return Entry(EntryKind.BARRIER, checkpoint=checkpoint)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a channel may hold before its producer has to wait."""

    max_records: int
    max_bytes: int
    max_micro_batches: int = 2
    """Of the consumer. Two keep it busy; more would not make it faster, and would delay every
    aligned barrier."""


UNBOUNDED = Bounds(sys.maxsize, sys.maxsize)


class ChannelLog:
    """The entries of a channel that the consumer has not consumed yet.

    The producer's thread appends, the consumer's thread consumes; any thread may read.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._lock = threading.Lock()
        self._bounds = bounds
        self._entries: deque[Entry] = deque()
        self._rows = 0
        self._bytes = 0
        self.position = 0
        """How many entries have been consumed; for the consumer's thread."""
        self.passed = CheckpointId(0)
        """The highest barrier that the consumer has consumed, 0 if none."""
        self.has_ended = False
        """Whether the consumer has consumed the end of input."""
        self.preferred_records: int | None = None
        """How many records the consumer would like to read at once, once it knows."""
        self.is_light = False
        """Whether the consumer's last micro-batch took hardly longer than an empty one."""

    def append(self, entry: Entry) -> None:
        """Append an entry that the producer published."""
        with self._lock:
            self._entries.append(entry)
            self._rows += entry.rows
            self._bytes += entry.size

    def pending(self) -> Sequence[Entry]:
        """Return all entries not yet consumed."""
        return self.peek()[1]

    def peek(self) -> tuple[int, Sequence[Entry]]:
        """Return the position of the first pending entry, and all pending entries."""
        with self._lock:
            return self.position, tuple(self._entries)

    @property
    def size(self) -> int:
        """How many bytes are pending."""
        return self._bytes

    @property
    def will_drain_soon(self) -> bool:
        """Whether the consumer has data and will soon have processed it."""
        return self.is_light and self._rows > 0

    def is_full(self) -> bool:
        """Whether the producer must not start another micro-batch; only data counts.

        Read without the lock: a count that is a moment old only shifts the bound by one entry.
        """
        most = self._bounds.max_records
        if self.preferred_records is not None:
            most = min(most, self._bounds.max_micro_batches * self.preferred_records)
        return self._rows >= most or self._bytes >= self._bounds.max_bytes

    def is_complete(self) -> bool:
        """Whether the producer will append no more data."""
        with self._lock:
            return self.has_ended or any(e.kind is EntryKind.END_OF_INPUT for e in self._entries)

    def consume(self, count: int) -> list[Entry]:
        """Remove and return the first `count` entries, whose micro-batch is published."""
        with self._lock:
            done = [self._entries.popleft() for _ in range(count)]
            self.position += count
            for entry in done:
                self._rows -= entry.rows
                self._bytes -= entry.size
                self.has_ended = self.has_ended or entry.kind is EntryKind.END_OF_INPUT
                if entry.checkpoint is not None:
                    self.passed = max(self.passed, entry.checkpoint)
            return done


def latest_watermark_status(entries: Sequence[Entry]) -> WatermarkStatus | None:
    """Return the watermark status after some entries, None if none of them has one."""
    found = [status for entry in entries if (status := entry.watermark_status) is not None]
    if not found:
        return None
    return WatermarkStatus(max(status.watermark for status in found), found[-1].is_idle)


def entries_to_take(entries: Sequence[Entry], max_records: int, most: int | None = None) -> int:
    """Decide how many pending entries of one input the next micro-batch reads.

    At least one with data if there is any, then as many as fit, but no more than `most` with
    data; entries without data are read together with those before them.
    """
    rows = with_data = 0
    for count, entry in enumerate(entries):
        if entry.kind is not EntryKind.DATA:
            continue
        rows += entry.rows
        if with_data and (rows > max_records or (most is not None and with_data >= most)):
            return count
        with_data += 1
    return len(entries)
