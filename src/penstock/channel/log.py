"""The log of a channel, as the driver keeps it.

One entry per published micro-batch of the producer, in order, and one for the end of input;
barriers and watermarks will be entries too. The log is the consumer's input buffer: it is
bounded, and an entry's files are deleted once its consumer has published what it made of them.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.channel.segment import Segment


class EntryKind(Enum):
    """What an entry of a channel's log stands for."""

    DATA = "data"
    END_OF_INPUT = "end of input"


@dataclass(frozen=True, slots=True)
class Entry:
    """One position of the log."""

    kind: EntryKind
    segments: tuple[Segment, ...] = ()

    @property
    def rows(self) -> int:
        """How many records the entry holds."""
        return sum(s.rows for s in self.segments)

    @property
    def size(self) -> int:
        """How many bytes the entry's files hold."""
        return sum(s.size for s in self.segments)


END_OF_INPUT = Entry(EntryKind.END_OF_INPUT)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a channel may hold before its producer waits."""

    max_records: int
    max_bytes: int


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
        self.wanted: int | None = None
        """How many records the consumer likes to take at once, once it knows."""

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

    def is_full(self) -> bool:
        """Whether the producer must not start another micro-batch; only data counts."""
        return self._rows >= self._bounds.max_records or self._bytes >= self._bounds.max_bytes

    def is_complete(self) -> bool:
        """Whether the producer will append nothing more."""
        with self._lock:
            last = self._entries[-1] if self._entries else None
            return self._ended or (last is not None and last.kind is EntryKind.END_OF_INPUT)

    def ends_within(self, count: int) -> bool:
        """Whether nothing will follow the first `count` entries."""
        with self._lock:
            if self._ended:
                return True
            return count > 0 and self._entries[count - 1].kind is EntryKind.END_OF_INPUT

    def consume(self, count: int) -> list[Entry]:
        """Drop the first `count` entries, whose effects are published, and return them."""
        with self._lock:
            done = [self._entries.popleft() for _ in range(count)]
            for entry in done:
                self._rows -= entry.rows
                self._bytes -= entry.size
                self._ended = self._ended or entry.kind is EntryKind.END_OF_INPUT
            return done


def entries_to_take(entries: Sequence[Entry], max_records: int, most: int | None = None) -> int:
    """Decide how many entries the next micro-batch takes from one input.

    At least one if there is any, then as many as fit, but no more than `most` with data; an end
    of input closes the batch.
    """
    rows = 0
    for count, entry in enumerate(entries):
        rows += entry.rows
        if count and (rows > max_records or (most is not None and rows and count >= most)):
            return count if entry.kind is EntryKind.DATA else count + 1
        if entry.kind is EntryKind.END_OF_INPUT:
            return count + 1
    return len(entries)
