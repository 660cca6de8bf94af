"""The clocks of a task, and the timer services that functions, triggers and windows use."""
# ruff: noqa: D102 - `TimerService` documents its methods

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NoReturn

from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK, NO_TIMESTAMP
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.errors import InvalidJobError
from penstock.state.key_groups import KeyGroupRange
from penstock.state.keyed.states import KeyedStates
from penstock.state.keyed.timers import TimerTable
from penstock.task.messages import NextTimers

EVENT_TIMERS = "_timers/event-time"
PROCESSING_TIMERS = "_timers/processing-time"
"""Names of states, which are part of savepoints: they must not change."""


class RecordTime:
    """The clocks of one task.

    The head sets the timestamp before it pushes a record. A record that is emitted gets the
    timestamp that is set then; a step that sets another one puts the old one back afterwards.
    """

    __slots__ = ("_began", "started", "timestamp", "watermark")

    def __init__(self, watermark: int = MIN_WATERMARK, started: int = 0) -> None:
        self.timestamp = NO_TIMESTAMP
        """Event time of the record that is being processed."""
        self.watermark = watermark
        """The watermark at the first step of the stage."""
        self.started = started
        """Processing time when the micro-batch started, by the driver's clock."""
        self._began = time.monotonic()

    def now(self) -> int:
        """Return processing time in milliseconds, by the clock of the driver."""
        return self.started + int((time.monotonic() - self._began) * 1000)


class UnkeyedTimerService(TimerService):
    """The timer service of steps without keys: it has clocks, but refuses timers."""

    def __init__(self, record_time: RecordTime, watermark: int) -> None:
        self._record_time = record_time
        self._watermark = watermark

    def current_processing_time(self) -> int:
        return self._record_time.now()

    def current_watermark(self) -> int:
        return self._watermark

    def _refuse(self, timestamp: int) -> NoReturn:
        message = "timers belong to keys, and this stream has none: put key_by() before the step"
        raise InvalidJobError(message)

    register_processing_time_timer = register_event_time_timer = _refuse
    delete_processing_time_timer = delete_event_time_timer = _refuse


class InternalTimerService(TimerService):
    """All timers of the keys of one subtask, in one micro-batch.

    Created once the step's states are bound. Timers are registered and deleted for the current key,
    with the bytes of a window as their namespace if they belong to one. A table is opened when it
    has a timer, so a step without timers has none.
    """

    def __init__(
        self,
        states: KeyedStates,
        first: NextTimers,
        key_groups: KeyGroupRange,
        record_time: RecordTime,
    ) -> None:
        self._states = states
        self._key_groups = key_groups
        self.record_time = record_time
        event, processing = first.event, first.processing
        self._event = None if event is None else self._open(EVENT_TIMERS, event)
        self._processing = None if processing is None else self._open(PROCESSING_TIMERS, processing)

    def current_processing_time(self) -> int:
        return self.record_time.now()

    def current_watermark(self) -> int:
        return self.record_time.watermark

    def register_event_time_timer(self, timestamp: int, namespace: bytes = b"") -> None:
        if self._event is None:
            self._event = self._open(EVENT_TIMERS, None)
        self._event.set(_checked(timestamp), namespace)

    def register_processing_time_timer(self, timestamp: int, namespace: bytes = b"") -> None:
        if self._processing is None:
            self._processing = self._open(PROCESSING_TIMERS, None)
        self._processing.set(_checked(timestamp), namespace)

    def delete_event_time_timer(self, timestamp: int, namespace: bytes = b"") -> None:
        if self._event is not None:
            self._event.delete(_checked(timestamp), namespace)

    def delete_processing_time_timer(self, timestamp: int, namespace: bytes = b"") -> None:
        if self._processing is not None:
            self._processing.delete(_checked(timestamp), namespace)

    def due(self, domain: TimeDomain, until: int) -> Iterator[tuple[int, bytes]]:
        """Remove and yield the timers that are due, ordered by time, as (time, namespace).

        The key of a timer is the current key while it fires. Timers that are registered meanwhile
        and are due are included.
        """
        states = self._states
        while True:
            table = self._event if domain is TimeDomain.EVENT_TIME else self._processing
            timer = None if table is None else table.pop(until, self._key_groups)
            if timer is None:
                return
            time, routed, namespace = timer
            states.current = states.number_of_key(routed)
            yield time, namespace

    def first(self) -> NextTimers:
        """Return when the first remaining timers are due."""
        tables, groups = (self._event, self._processing), self._key_groups
        return NextTimers(*(None if table is None else table.first(groups) for table in tables))

    def _open(self, name: str, first: int | None) -> TimerTable:
        table = self._states.get_timers(name)
        table.expect(first)
        return table


def _checked(time: int) -> int:
    if time.__class__ is not int or not MIN_WATERMARK <= time <= MAX_WATERMARK:
        message = f"a timer is set to milliseconds since the epoch, an int; got {time!r}"
        raise InvalidJobError(message)
    return time
