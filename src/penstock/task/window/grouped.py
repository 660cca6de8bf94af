"""Windows that records are folded into, micro-batch by micro-batch: each one's state touched once.

For windows in event time that fire when the watermark passes their end, and whose records are
folded as they come. The watermark stands still while records are processed, so records of windows
that it has not passed cannot make anything fire: they are sorted by key and window first. What it
has passed goes record by record, in order, as every late record fires its window again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.datastream.window.assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.datastream.window.sessions import EventTimeSessionWindows
from penstock.datastream.window.triggers import EventTimeTrigger
from penstock.datastream.window.windows import TimeWindow
from penstock.state.keyed import KeyedStates
from penstock.task.failure import StepFailed, fail
from penstock.task.moment import Moment
from penstock.task.window.contents import Folded
from penstock.task.window.operator import WindowOperator, WindowParts

__all__ = ["GroupedWindows", "grouped"]

Ints = npt.NDArray[np.int64]

FARTHEST = 1 << 61
"""Times from the epoch up to which nothing that is computed here can overflow."""


def grouped(parts: WindowParts, operator: WindowOperator) -> GroupedWindows | None:
    """Return what does the operator's work for whole micro-batches, if it can be done so."""
    operation = parts.operation
    exact = type(operation.trigger) is EventTimeTrigger and isinstance(operator.contents, Folded)
    if not exact or not _is_small(operation.allowed_lateness):
        return None
    assigner = operation.assigner
    if type(assigner) is TumblingEventTimeWindows and _is_small(assigner._size):
        return _Sliced(parts, operator, assigner._size, assigner._size, assigner._offset)
    if type(assigner) is SlidingEventTimeWindows and _is_small(assigner._size, assigner._slide):
        return _Sliced(parts, operator, assigner._size, assigner._slide, assigner._offset)
    if type(assigner) is EventTimeSessionWindows and _is_small(assigner._session_gap):
        return _Sessions(parts, operator, assigner._session_gap)
    return None


def _is_small(*times: int) -> bool:
    return all(time < FARTHEST // 4 for time in times)


class GroupedWindows:
    """What the ways to group have in common."""

    def __init__(self, parts: WindowParts, operator: WindowOperator) -> None:
        assert isinstance(operator.contents, Folded)
        self._name = parts.name
        self._operator = operator
        self._contents: Folded = operator.contents
        self._keyed: KeyedStates = parts.states
        self._timers = parts.timers
        self._moment: Moment = parts.moment
        self._lateness = parts.operation.allowed_lateness

    def run(self, numbers: Sequence[int], times: Sequence[int], values: Sequence[Any]) -> bool:
        """Process a micro-batch's records, given the number of each one's key and its time.

        Returns whether it did: some records have to be told one by one that they cannot be.
        """
        at = np.asarray(times, np.int64)
        if len(at) and (at.min() < -FARTHEST or at.max() > FARTHEST):
            return False
        self._run(np.asarray(numbers, np.int64), at, values)
        return True

    def _run(self, numbers: Ints, times: Ints, values: Sequence[Any]) -> None:
        raise NotImplementedError

    def _one_by_one(
        self, rows: Ints, numbers: Ints, times: Ints, values: Sequence[Any]
    ) -> Iterator[Any]:
        """Go through some records, in order, as if they had come alone."""
        triples = zip(rows.tolist(), numbers[rows].tolist(), times[rows].tolist(), strict=True)
        for row, self._keyed.current, self._moment.timestamp in triples:
            yield values[row]

    def _fold(self, number: int, values: list[Any]) -> bool:
        """Fold records into a window; tell whether it was empty."""
        self._operator.windows.current = number
        left = iter(values)
        try:
            return self._contents.add_all(left)
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._name, values[-1 - len(list(left))], error)

    def _register(self, window: TimeWindow, namespace: bytes) -> None:
        end = window.end - 1
        self._timers.register_event(end, namespace)
        if self._lateness:
            self._timers.register_event(end + self._lateness, namespace)


class _Sliced(GroupedWindows):
    """Tumbling and sliding windows."""

    def __init__(
        self, parts: WindowParts, operator: WindowOperator, size: int, slide: int, offset: int
    ) -> None:
        super().__init__(parts, operator)
        self._size = size
        self._slide = slide
        self._offset = offset

    def _run(self, numbers: Ints, times: Ints, values: Sequence[Any]) -> None:
        watermark = self._moment.watermark
        rows, starts = self._pairs(times)
        ends = starts + (self._size - 1)
        is_over = ends + self._lateness <= watermark
        fires = ends <= watermark
        taken = np.zeros(len(times), bool)
        taken[rows[~is_over]] = True
        behind = np.flatnonzero(fires & ~is_over)
        missed = np.flatnonzero(~taken & (times + self._lateness <= watermark))
        self._late(numbers, times, values, rows[behind], starts[behind], missed)
        ahead = np.flatnonzero(~fires)
        self._fold_all(numbers[rows[ahead]], starts[ahead], rows[ahead], values)

    def _pairs(self, times: Ints) -> tuple[Ints, Ints]:
        """Return every record with every window of it, as row and start."""
        last = times - np.mod(times - self._offset, self._slide)
        if self._size == self._slide:
            return np.arange(len(times)), last
        steps = np.arange(-(-self._size // self._slide)) * self._slide
        starts = last[:, None] - steps[None, :]
        rows, columns = np.nonzero(starts > times[:, None] - self._size)
        return rows, starts[rows, columns]

    def _late(
        self,
        numbers: Ints,
        times: Ints,
        values: Sequence[Any],
        rows: Ints,
        starts: Ints,
        missed: Ints,
    ) -> None:
        """Give late records to windows that still take them, and others to nobody."""
        operator, moment = self._operator, self._moment
        records = self._one_by_one(rows, numbers, times, values)
        for value, start in zip(records, starts.tolist(), strict=True):
            try:
                operator.add(TimeWindow(start, start + self._size), value, moment.timestamp)
            except StepFailed:
                raise
            except (Exception, SystemExit) as error:
                fail(self._name, value, error)
        for value in self._one_by_one(missed, numbers, times, values):
            operator.late(value)

    def _fold_all(self, keys: Ints, starts: Ints, rows: Ints, values: Sequence[Any]) -> None:
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
            if self._fold(number, sorted_values[first:stop]):
                # A window that holds something has its timers.
                self._register(windows[start], namespaces[start])


class _Sessions(GroupedWindows):
    """Sessions with a fixed gap: the records of a key become sessions among themselves first."""

    def __init__(self, parts: WindowParts, operator: WindowOperator, gap: int) -> None:
        super().__init__(parts, operator)
        self._gap = gap

    def _run(self, numbers: Ints, times: Ints, values: Sequence[Any]) -> None:
        # Whether a late record is taken depends on what came before it: its key goes in order.
        behind = np.zeros(len(self._keyed.routed), bool)
        behind[numbers[times + (self._gap - 1) <= self._moment.watermark]] = True
        is_behind = behind[numbers]
        rows = np.flatnonzero(is_behind)
        for value in self._one_by_one(rows, numbers, times, values):
            self._operator.process(value)
        ahead = np.flatnonzero(~is_behind)
        if len(ahead):
            self._fold_all(numbers[ahead], times[ahead], ahead, values)

    def _fold_all(self, keys: Ints, times: Ints, rows: Ints, values: Sequence[Any]) -> None:
        order = np.lexsort((times, keys))
        sorted_keys, sorted_times = keys[order], times[order]
        begins = np.empty(len(order), bool)
        begins[0] = True
        begins[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (
            sorted_times[1:] - sorted_times[:-1] > self._gap
        )
        bounds = np.append(np.flatnonzero(begins), len(order))
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
            # In the order in which they came, not in that of their times.
            mine = sorted(sorted_rows[first:stop])
            self._fold(number, list(map(values.__getitem__, mine)))
            # One of the sessions behind it may have made it grow further.
            if self._operator.in_flight().contents_of(session.namespace) is not None:
                self._register(session.window, session.namespace)

    def _in_flight(self, key: int, start: int, end: int) -> _Session:
        """Put a session among those in flight of its key."""
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
    """The window that its contents are kept under."""


def _groups(keys: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Return an order that brings equal keys and starts together, and where groups begin in it.

    Within a group the order is what it was; the last bound is the end.
    """
    order = np.lexsort((starts, keys))
    sorted_keys, sorted_starts = keys[order], starts[order]
    differs = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_starts[1:] != sorted_starts[:-1])
    return order, np.concatenate(([0], np.flatnonzero(differs) + 1, [len(order)]))
