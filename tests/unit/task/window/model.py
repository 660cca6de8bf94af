"""What windows have to give, worked out the long way: all records kept, nothing clever.

The watermark stands still while the records of a micro-batch come, and moves after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.task.window.harness import Event

Fired = tuple[Any, int, int, tuple[Any, ...]]
"""A key, the ends of its window, and the values in it, sorted."""


@dataclass
class Output:
    """The output of a micro-batch: results during its records, results after them, late records."""

    at_once: list[Fired] = field(default_factory=list)
    after: list[Fired] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)


class SlicedModel:
    """Windows of a size at every slide."""

    def __init__(self, size: int, slide: int, offset: int, lateness: int) -> None:
        self._size, self._slide, self._offset = size, slide, offset
        self._lateness = lateness
        self._held: dict[tuple[Any, int], list[Any]] = {}
        self._watermark = -(2**63)

    def batch(self, events: Sequence[Event], watermark: int) -> Output:
        output, before = Output(), self._watermark
        for event in events:
            taken = False
            for start in range(event.time, event.time - self._size, -1):
                if (start - self._offset) % self._slide:
                    continue
                last = start + self._size - 1
                if last + self._lateness > before:
                    taken = True
                    self._held.setdefault((event.key, start), []).append(event.value)
                    if last <= before:
                        output.at_once.append(self._fired(event.key, start))
            if not taken and event.time + self._lateness <= before:
                output.late.append(event.value)
        for key, start in list(self._held):
            last = start + self._size - 1
            if before < last <= watermark:
                output.after.append(self._fired(key, start))
            if last + self._lateness <= watermark:
                del self._held[key, start]
        self._watermark = watermark
        return output

    def _fired(self, key: Any, start: int) -> Fired:
        return key, start, start + self._size, tuple(sorted(self._held[key, start]))


class CountModel:
    """Windows of so many records of a key, a new one at every slide."""

    def __init__(self, size: int, slide: int) -> None:
        self._size, self._slide = size, slide
        self._came: dict[Any, list[Any]] = {}

    def batch(self, events: Sequence[Event]) -> list[Fired]:
        """Return the windows that are full now, each with its number in place of its ends."""
        fired = []
        for event in events:
            came = self._came.setdefault(event.key, [])
            came.append(event.value)
            number, rest = divmod(len(came) - self._size, self._slide)
            if number >= 0 and not rest:
                fired.append((event.key, number, number, tuple(came[-self._size :])))
        return fired

    def unfinished(self) -> int:
        """Return how many windows hold something and are not full."""
        return sum(
            len(came) - start < self._size
            for came in self._came.values()
            for start in range(0, len(came), self._slide)
        )


class ClockModel:
    """Windows of a size at every slide, by the clock: they fire before the records of a batch."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        self._size, self._slide, self._offset = size, slide, offset
        self._held: dict[tuple[Any, int], list[Any]] = {}

    def batch(self, events: Sequence[Event], now: int) -> list[Fired]:
        over = [window for window in self._held if window[1] + self._size - 1 <= now]
        fired = [
            (key, start, start + self._size, tuple(sorted(self._held.pop((key, start)))))
            for key, start in over
        ]
        for event in events:
            for start in range(now, now - self._size, -1):
                if (start - self._offset) % self._slide == 0:
                    self._held.setdefault((event.key, start), []).append(event.value)
        return fired


class ContinuousModel:
    """Tumbling windows that fire at multiples of an interval too, from their first record on."""

    def __init__(self, size: int, interval: int, lateness: int) -> None:
        self._size, self._interval, self._lateness = size, interval, lateness
        self._held: dict[tuple[Any, int], list[Any]] = {}
        self._next: dict[tuple[Any, int], int] = {}
        self._watermark = -(2**63)

    def batch(self, events: Sequence[Event], watermark: int) -> Output:
        output, before = Output(), self._watermark
        for event in events:
            window = event.key, event.time - event.time % self._size
            last = window[1] + self._size - 1
            if last + self._lateness <= before:
                output.late.append(event.value)
                continue
            self._held.setdefault(window, []).append(event.value)
            if last <= before:
                output.at_once.append(self._fired(window))
            else:
                after = event.time - event.time % self._interval + self._interval
                self._next.setdefault(window, after)
        for window in list(self._held):
            last = window[1] + self._size - 1
            while window in self._next and self._next[window] <= min(watermark, last - 1):
                output.after.append(self._fired(window))
                self._next[window] += self._interval
            if before < last <= watermark:
                output.after.append(self._fired(window))
            if last + self._lateness <= watermark:
                del self._held[window]
                self._next.pop(window, None)
        self._watermark = watermark
        return output

    def _fired(self, window: tuple[Any, int]) -> Fired:
        key, start = window
        return key, start, start + self._size, tuple(sorted(self._held[window]))


class SessionModel:
    """Sessions: records that are each within a gap of another."""

    def __init__(self, gap: Callable[[Event], int], lateness: int) -> None:
        self._gap = gap
        self._lateness = lateness
        self._held: dict[Any, list[Event]] = {}
        self._watermark = -(2**63)

    def batch(self, events: Sequence[Event], watermark: int) -> Output:
        output, before = Output(), self._watermark
        for event in events:
            held = self._held.get(event.key, [])
            (session,) = [s for s in self._sessions([*held, event]) if any(e is event for e in s)]
            last = self._end(session) - 1
            if last + self._lateness <= before:
                if event.time + self._lateness <= before:
                    output.late.append(event.value)
                continue
            self._held[event.key] = [*held, event]
            if last <= before:
                output.at_once.append(self._fired(session))
        for key, held in list(self._held.items()):
            for session in self._sessions(held):
                last = self._end(session) - 1
                if before < last <= watermark:
                    output.after.append(self._fired(session))
                if last + self._lateness <= watermark:
                    gone = {id(event) for event in session}
                    self._held[key] = [e for e in self._held[key] if id(e) not in gone]
        self._watermark = watermark
        return output

    def _sessions(self, events: list[Event]) -> list[list[Event]]:
        sessions: list[list[Event]] = []
        for event in sorted(events, key=lambda e: e.time):
            if sessions and event.time <= self._end(sessions[-1]):
                sessions[-1].append(event)
            else:
                sessions.append([event])
        return sessions

    def _end(self, session: list[Event]) -> int:
        return max(event.time + self._gap(event) for event in session)

    def _fired(self, session: list[Event]) -> Fired:
        values = tuple(sorted(event.value for event in session))
        return session[0].key, session[0].time, self._end(session), values
