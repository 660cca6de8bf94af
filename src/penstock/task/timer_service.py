"""The timers of a keyed step inside a task, and who asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.errors import InvalidJobError
from penstock.state.key_groups import KeyGroupRange
from penstock.state.keyed import KeyedStates
from penstock.state.timers import TimerTable
from penstock.task.messages import NextTimers
from penstock.task.moment import Moment

__all__ = ["ClockService", "KeyedTimerService", "Timers"]

EVENT_TIMERS = "_timers/event-time"
PROCESSING_TIMERS = "_timers/processing-time"
"""Names of states: part of every savepoint."""


class Timers:
    """All timers of the keys of one subtask, in one micro-batch.

    Made once the step's states are bound. A table is asked for when there is a timer in it, so a
    step without timers keeps none.
    """

    def __init__(self, states: KeyedStates, first: NextTimers, key_groups: KeyGroupRange) -> None:
        self._states = states
        self._key_groups = key_groups
        self._first = first
        self._event: TimerTable | None = None
        self._processing: TimerTable | None = None
        if first.event is not None:
            self._event_table()
        if first.processing is not None:
            self._processing_table()

    def register_event(self, time: int, namespace: bytes = b"") -> None:
        """Set an event-time timer of the current key."""
        (self._event or self._event_table()).set(_checked(time), namespace)

    def register_processing(self, time: int, namespace: bytes = b"") -> None:
        """Set a processing-time timer of the current key."""
        (self._processing or self._processing_table()).set(_checked(time), namespace)

    def delete_event(self, time: int, namespace: bytes = b"") -> None:
        """Delete an event-time timer of the current key."""
        if self._event is not None:
            self._event.delete(_checked(time), namespace)

    def delete_processing(self, time: int, namespace: bytes = b"") -> None:
        """Delete a processing-time timer of the current key."""
        if self._processing is not None:
            self._processing.delete(_checked(time), namespace)

    def due(self, domain: TimeDomain, until: int) -> Iterator[tuple[int, bytes]]:
        """Take timers that are due, in the order of their times, as (time, namespace).

        The key of each is the current one while its turn is. Those that are set meanwhile and are
        due as well come too.
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
        """Return when the first ones are due that are left."""
        return NextTimers(self._first_of(self._event), self._first_of(self._processing))

    def _first_of(self, table: TimerTable | None) -> int | None:
        return None if table is None else table.first(self._key_groups)

    def _event_table(self) -> TimerTable:
        self._event = self._states.get_timers(EVENT_TIMERS)
        self._event.expect(self._first.event)
        return self._event

    def _processing_table(self) -> TimerTable:
        self._processing = self._states.get_timers(PROCESSING_TIMERS)
        self._processing.expect(self._first.processing)
        return self._processing


def _checked(time: int) -> int:
    if time.__class__ is not int or not MIN_WATERMARK <= time <= MAX_WATERMARK:
        message = f"a timer is set to milliseconds since the epoch, an int; got {time!r}"
        raise InvalidJobError(message)
    return time


class ClockService(TimerService):
    """For steps without keys: the time, and no timers."""

    def __init__(self, moment: Moment, watermark: Callable[[], int]) -> None:
        self._moment = moment
        self._watermark = watermark

    def current_processing_time(self) -> int:
        """Return the time of the machine."""
        return self._moment.now()

    def current_watermark(self) -> int:
        """Return the watermark of the step."""
        return self._watermark()

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Refuse."""
        _refuse()

    def register_event_time_timer(self, timestamp: int) -> None:
        """Refuse."""
        _refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Refuse."""
        _refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Refuse."""
        _refuse()


class KeyedTimerService(ClockService):
    """For steps with keys: the time, and the current key's timers."""

    def __init__(self, moment: Moment, timers: Timers) -> None:
        super().__init__(moment, lambda: moment.watermark)
        self._timers = timers

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Set a timer of the current key."""
        self._timers.register_processing(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        """Set a timer of the current key."""
        self._timers.register_event(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a timer of the current key."""
        self._timers.delete_processing(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer of the current key."""
        self._timers.delete_event(timestamp)


def _refuse() -> NoReturn:
    message = "timers belong to keys, and this stream has none: put key_by() before the step"
    raise InvalidJobError(message)
