"""Aggregates the records of a micro-batch window by window: one state access for each window.

For event-time windows that fire when the watermark passes their end, and that aggregate their
records. The watermark does not move while records are processed, so records of windows that it has
not passed cannot fire anything: they are sorted by key and window first. Late records are processed
one by one, in order, because each fires its window again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.datastream.window.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.datastream.window.sessions import EventTimeSessionWindows
from penstock.datastream.window.triggers import EventTimeTrigger
from penstock.datastream.window.windows import TimeWindow
from penstock.task.failure import fail
from penstock.task.window.contents import AggregatedContents
from penstock.task.window.operator import WindowOperator, WindowOperatorContext

Ints = npt.NDArray[np.int64]

MAX_TIME = 1 << 61
"""Up to this distance from the epoch nothing that is computed here can overflow."""


def grouped(context: WindowOperatorContext, operator: WindowOperator) -> GroupedWindows | None:
    """Return the grouped execution of an operator; None if it must process record by record."""
    operation = context.operation
    if (
        type(operation.trigger) is not EventTimeTrigger
        or not isinstance(operator.contents, AggregatedContents)
        or not _is_small(operation.allowed_lateness)
    ):
        return None
    assigner = operation.assigner
    if type(assigner) is TumblingEventTimeWindows and _is_small(assigner._size):
        return _Sliced(context, operator, assigner._size, assigner._size, assigner._offset)
    if type(assigner) is SlidingEventTimeWindows and _is_small(assigner._size, assigner._slide):
        return _Sliced(context, operator, assigner._size, assigner._slide, assigner._offset)
    if type(assigner) is EventTimeSessionWindows and _is_small(assigner._session_gap):
        return _Sessions(context, operator, assigner._session_gap)
    return None


def _is_small(*times: int) -> bool:
    return all(time < MAX_TIME // 4 for time in times)


class GroupedWindows:
    """The grouped execution of a window operator."""

    def __init__(self, context: WindowOperatorContext, operator: WindowOperator) -> None:
        assert isinstance(operator.contents, AggregatedContents)
        self._name = context.name
        self._operator = operator
        self._contents: AggregatedContents = operator.contents
        self._keyed = context.states
        self._timers = context.timers
        self._record_time = context.timers.record_time
        self._lateness = context.operation.allowed_lateness

    def run(self, numbers: Sequence[int], times: Sequence[int], values: Sequence[Any]) -> bool:
        """Process the records of a micro-batch, given the number of each one's key and its time.

        Returns False, without doing anything, if a time is too large for this.
        """
        at = np.asarray(times, np.int64)
        if len(at) and (at.min() < -MAX_TIME or at.max() > MAX_TIME):
            return False
        self._run(np.asarray(numbers, np.int64), at, values)
        return True

    def _run(self, numbers: Ints, times: Ints, values: Sequence[Any]) -> None:
        raise NotImplementedError

    def _one_by_one(
        self, numbers: Ints, times: Ints, values: Sequence[Any], rows: Ints
    ) -> Iterator[Any]:
        """Yield some records in order, with their key and timestamp set."""
        triples = zip(rows.tolist(), numbers[rows].tolist(), times[rows].tolist(), strict=True)
        for row, self._keyed.current, self._record_time.timestamp in triples:
            yield values[row]

    def _aggregate(self, number: int, values: list[Any]) -> bool:
        """Add records to a window; return whether it was empty."""
        self._operator.windows.current = number
        left = iter(values)
        try:
            return self._contents.add_all(left)
        except (Exception, SystemExit) as error:
            fail(self._name, values[-1 - len(list(left))], error)

    def _register(self, window: TimeWindow, namespace: bytes) -> None:
        end = window.end - 1
        self._timers.register_event_time_timer(end, namespace)
        if self._lateness:
            self._timers.register_event_time_timer(end + self._lateness, namespace)


class _Sliced(GroupedWindows):
    """Tumbling and sliding windows."""

    def __init__(
        self, context: WindowOperatorContext, operator: WindowOperator, *sizes: int
    ) -> None:
        super().__init__(context, operator)
        self._size, self._slide, self._offset = sizes

    def _run(self, numbers: Ints, times: Ints, values: Sequence[Any]) -> None:
        watermark = self._record_time.watermark
        one_by_one = partial(self._one_by_one, numbers, times, values)
        rows, starts = self._pairs(times)
        ends = starts + (self._size - 1)
        is_over = ends + self._lateness <= watermark
        fires = ends <= watermark
        added = np.zeros(len(times), bool)
        added[rows[~is_over]] = True
        late = np.flatnonzero(fires & ~is_over)
        dropped = np.flatnonzero(~added & (times + self._lateness <= watermark))
        for value, start in zip(one_by_one(rows[late]), starts[late].tolist(), strict=True):
            window = TimeWindow(start, start + self._size)
            try:
                self._operator.add(window, value, self._record_time.timestamp)
            except (Exception, SystemExit) as error:
                fail(self._name, value, error)
        for value in one_by_one(dropped):
            self._operator.late(value)
        on_time = np.flatnonzero(~fires)
        self._aggregate_all(numbers[rows[on_time]], starts[on_time], rows[on_time], values)

    def _pairs(self, times: Ints) -> tuple[Ints, Ints]:
        """Return each record with each of its windows, as row and window start."""
        last = times - np.mod(times - self._offset, self._slide)
        if self._size == self._slide:
            return np.arange(len(times)), last
        steps = np.arange(-(-self._size // self._slide)) * self._slide
        starts = last[:, None] - steps[None, :]
        rows, columns = np.nonzero(starts > times[:, None] - self._size)
        return rows, starts[rows, columns]

    def _aggregate_all(self, keys: Ints, starts: Ints, rows: Ints, values: Sequence[Any]) -> None:
        if not len(rows):
            return
        order, bounds = _groups(keys, starts)
        sorted_values = list(map(values.__getitem__, rows[order].tolist()))
        group_keys = keys[order[bounds[:-1]]].tolist()
        group_starts = starts[order[bounds[:-1]]].tolist()
        encode = self._operator.encoding.encode
        windows = {start: TimeWindow(start, start + self._size) for start in set(group_starts)}
        namespaces = {start: encode(window) for start, window in windows.items()}
        routed = self._keyed.routed
        found = self._operator.windows.numbers_of(
            [routed[k] + namespaces[s] for k, s in zip(group_keys, group_starts, strict=True)]
        )
        slices = pairwise(bounds.tolist())
        groups = zip(group_keys, group_starts, found, slices, strict=True)
        for key, start, number, (first, stop) in groups:
            self._keyed.current = key
            if self._aggregate(number, sorted_values[first:stop]):
                # A window that was not empty has its timers.
                self._register(windows[start], namespaces[start])


class _Sessions(GroupedWindows):
    """Sessions with a fixed gap: first the new records of a key are grouped into sessions."""

    def __init__(self, context: WindowOperatorContext, operator: WindowOperator, gap: int) -> None:
        super().__init__(context, operator)
        self._gap = gap

    def _run(self, numbers: Ints, times: Ints, values: Sequence[Any]) -> None:
        # Whether a late record is added depends on the records before it: process its key in order.
        late_keys = np.zeros(len(self._keyed.routed), bool)
        late_keys[numbers[times + (self._gap - 1) <= self._record_time.watermark]] = True
        is_late = late_keys[numbers]
        rows = np.flatnonzero(is_late)
        for value in self._one_by_one(numbers, times, values, rows):
            self._operator.process(value)
        on_time = np.flatnonzero(~is_late)
        if len(on_time):
            self._aggregate_all(numbers[on_time], times[on_time], on_time, values)

    def _aggregate_all(self, keys: Ints, times: Ints, rows: Ints, values: Sequence[Any]) -> None:
        order, bounds = _groups(keys, times, self._gap)
        sorted_keys, sorted_times = keys[order], times[order]
        starts, stops = bounds[:-1], bounds[1:]
        found = zip(
            sorted_keys[starts].tolist(),
            sorted_times[starts].tolist(),
            (sorted_times[stops - 1] + self._gap).tolist(),
            strict=True,
        )
        sessions = [self._in_flight(key, start, end) for key, start, end in found]
        routed = self._keyed.routed
        numbers = self._operator.windows.numbers_of([routed[s.key] + s.contents for s in sessions])
        sorted_rows = rows[order].tolist()
        slices = pairwise(bounds.tolist())
        for session, number, (first, stop) in zip(sessions, numbers, slices, strict=True):
            self._keyed.current = session.key
            # In arrival order, not by time.
            mine = sorted(sorted_rows[first:stop])
            self._aggregate(number, list(map(values.__getitem__, mine)))
            # A later session may have merged with it: then it is not in flight any more.
            if self._operator.in_flight().contents_of(session.namespace) is not None:
                self._register(session.window, session.namespace)

    def _in_flight(self, key: int, start: int, end: int) -> _Session:
        """Add a session to the in-flight windows of its key."""
        self._keyed.current = key
        in_flight = self._operator.in_flight()
        window, namespace = in_flight.add(TimeWindow(start, end), self._operator.merge)
        contents = in_flight.contents_of(namespace)
        assert contents is not None
        return _Session(key, window, namespace, contents)


class _Session(NamedTuple):
    key: int
    window: TimeWindow
    namespace: bytes
    contents: bytes
    """The window whose state holds its contents."""


def _groups(keys: Ints, times: Ints, gap: int = 0) -> tuple[Ints, Ints]:
    """Return a stable order by key and time, and the bounds of the groups in it.

    A group has one key, and no two of its times in order are further apart than `gap`.
    """
    order = np.lexsort((times, keys))
    differs = (np.diff(keys[order]) != 0) | (np.diff(times[order]) > gap)
    return order, np.concatenate(([0], np.flatnonzero(differs) + 1, [len(order)]))
