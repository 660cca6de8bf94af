"""What windows have to give, worked out the long way: all records kept, nothing clever.

The watermark stands still while the records of a micro-batch come, and moves behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.task.window.harness import Event

Fired = tuple[Any, int, int, tuple[Any, ...]]
"""A key, the ends of its window, and the values in it, sorted."""


@dataclass
class Given:
    """What a micro-batch gives: results while records come, results behind them, late records."""

    at_once: list[Fired] = field(default_factory=list)
    behind: list[Fired] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)


class SlicedModel:
    """Windows of a size at every slide."""

    def __init__(self, size: int, slide: int, offset: int, lateness: int) -> None:
        self._size, self._slide, self._offset = size, slide, offset
        self._lateness = lateness
        self._held: dict[tuple[Any, int], list[Any]] = {}
        self._watermark = -(2**63)

    def batch(self, events: Sequence[Event], watermark: int) -> Given:
        given, before = Given(), self._watermark
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
                        given.at_once.append(self._fired(event.key, start))
            if not taken and event.time + self._lateness <= before:
                given.late.append(event.value)
        for key, start in list(self._held):
            last = start + self._size - 1
            if before < last <= watermark:
                given.behind.append(self._fired(key, start))
            if last + self._lateness <= watermark:
                del self._held[key, start]
        self._watermark = watermark
        return given

    def _fired(self, key: Any, start: int) -> Fired:
        return key, start, start + self._size, tuple(sorted(self._held[key, start]))


class SessionModel:
    """Sessions: the records that hang together, each within a gap behind another."""

    def __init__(self, gap: Callable[[Event], int], lateness: int) -> None:
        self._gap = gap
        self._lateness = lateness
        self._held: dict[Any, list[Event]] = {}
        self._watermark = -(2**63)

    def batch(self, events: Sequence[Event], watermark: int) -> Given:
        given, before = Given(), self._watermark
        for event in events:
            held = self._held.get(event.key, [])
            (session,) = [s for s in self._sessions([*held, event]) if any(e is event for e in s)]
            last = self._end(session) - 1
            if last + self._lateness <= before:
                if event.time + self._lateness <= before:
                    given.late.append(event.value)
                continue
            self._held[event.key] = [*held, event]
            if last <= before:
                given.at_once.append(self._fired(session))
        for key, held in list(self._held.items()):
            for session in self._sessions(held):
                last = self._end(session) - 1
                if before < last <= watermark:
                    given.behind.append(self._fired(session))
                if last + self._lateness <= watermark:
                    gone = {id(event) for event in session}
                    self._held[key] = [e for e in self._held[key] if id(e) not in gone]
        self._watermark = watermark
        return given

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
