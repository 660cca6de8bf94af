"""The log of a channel, as the driver keeps it.

One entry per published micro-batch of the producer, in order, with barriers and watermarks between
them and one entry for the end of input. Barriers still come behind the end: a finished source
answers every checkpoint. The log is the consumer's input buffer: it is bounded, and an entry's
files are deleted once its consumer has published what it made of them.
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
    """What an entry of a channel's log stands for."""

    DATA = "data"
    BARRIER = "barrier"
    WATERMARK = "watermark"
    """No data, but news of event time."""
    END_OF_INPUT = "end of input"


@dataclass(frozen=True, slots=True)
class Clock:
    """What is known of the event time of a stream."""

    watermark: int = MIN_WATERMARK
    """Nothing that comes is older, or as old."""
    is_idle: bool = False
    """Whether nobody shall wait for it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One position of the log."""

    kind: EntryKind
    segments: tuple[Segment, ...] = ()
    checkpoint: CheckpointId | None = None
    """Of a barrier: the checkpoint it belongs to."""
    clock: Clock | None = None
    """Of data and watermarks: what time it is in the stream behind the entry."""

    @property
    def rows(self) -> int:
        """How many records the entry holds."""
        return sum(s.rows for s in self.segments)

    @property
    def size(self) -> int:
        """How many bytes the entry's files hold."""
        return sum(s.size for s in self.segments)


END_OF_INPUT = Entry(EntryKind.END_OF_INPUT, clock=Clock(MAX_WATERMARK))


def barrier(checkpoint: CheckpointId) -> Entry:
    """Return the entry that divides what belongs to a checkpoint from what comes after it."""
    return Entry(EntryKind.BARRIER, checkpoint=checkpoint)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a channel may hold before its producer waits."""

    max_records: int
    max_bytes: int
    max_micro_batches: int = 2
    """Of the consumer. Two keep it busy; more would not make it faster, and every barrier that is
    aligned has to wait behind them."""


UNBOUNDED = Bounds(sys.maxsize, sys.maxsize)


class ChannelLog:
    """Entries not yet consumed for good; one thread appends, one other consumes."""

    def __init__(self, bounds: Bounds) -> None:
        self._lock = threading.Lock()
        self._bounds = bounds
        self._entries: deque[Entry] = deque()
        self._rows = 0
        self._bytes = 0
        self._ended = False
        self._position = 0
        self._passed = CheckpointId(0)
        self.wanted: int | None = None
        """How many records the consumer likes to take at once, once it knows."""
        self.is_light = False
        """Whether the consumer's last micro-batch cost hardly more than an empty one."""

    def append(self, entry: Entry) -> None:
        """Add what the producer published."""
        with self._lock:
            self._entries.append(entry)
            self._rows += entry.rows
            self._bytes += entry.size

    def pending(self) -> Sequence[Entry]:
        """Return all entries not yet consumed."""
        with self._lock:
            return tuple(self._entries)

    def look(self) -> tuple[int, Sequence[Entry]]:
        """Return the position of the first entry that waits, and all of them; for any thread."""
        with self._lock:
            return self._position, tuple(self._entries)

    @property
    def size(self) -> int:
        """How many bytes wait in the channel."""
        return self._bytes

    @property
    def position(self) -> int:
        """How many entries have been consumed; asked by the consumer."""
        return self._position

    @property
    def passed(self) -> CheckpointId:
        """The highest barrier the consumer has consumed, 0 if none."""
        return self._passed

    @property
    def has_ended(self) -> bool:
        """Whether the consumer has seen the end of input."""
        return self._ended

    @property
    def is_passing_on(self) -> bool:
        """Whether the consumer has data, and will soon be through with it."""
        return self.is_light and self._rows > 0

    def is_full(self) -> bool:
        """Whether the producer must not start another micro-batch; only data counts."""
        most = self._bounds.max_records
        if self.wanted is not None:
            most = min(most, self._bounds.max_micro_batches * self.wanted)
        return self._rows >= most or self._bytes >= self._bounds.max_bytes

    def is_complete(self) -> bool:
        """Whether the producer will append no more data."""
        with self._lock:
            return self._ended or any(e.kind is EntryKind.END_OF_INPUT for e in self._entries)

    def consume(self, count: int) -> list[Entry]:
        """Drop the first `count` entries, whose effects are published, and return them."""
        with self._lock:
            done = [self._entries.popleft() for _ in range(count)]
            self._position += count
            for entry in done:
                self._rows -= entry.rows
                self._bytes -= entry.size
                self._ended = self._ended or entry.kind is EntryKind.END_OF_INPUT
                if entry.checkpoint is not None:
                    self._passed = max(self._passed, entry.checkpoint)
            return done


def last_clock(entries: Sequence[Entry]) -> Clock | None:
    """Return what some entries leave known of event time, None if they say nothing of it."""
    clocks = [entry.clock for entry in entries if entry.clock is not None]
    if not clocks:
        return None
    return Clock(max(clock.watermark for clock in clocks), clocks[-1].is_idle)


def entries_to_take(entries: Sequence[Entry], max_records: int, most: int | None = None) -> int:
    """Decide how many of some entries the next micro-batch takes from one input.

    At least one with data if there is any, then as many as fit, but no more than `most` with
    data; what holds no data goes along with what stands before it.
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
