"""The set of windows in flight: which window a record is in, and where its contents lie."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.datastream.window import (
    EventTimeSessionWindows,
    MergingWindowAssigner,
    TimeWindow,
    TimeWindowSerializer,
)
from penstock.state.window_bytes import encoding_for
from penstock.task.window.merging import Merge, MergingWindowSet

ENCODING = encoding_for(TimeWindowSerializer())


class DictState(dict[Any, Any]):
    """As much of a map state as the set needs."""

    put = dict.__setitem__
    remove = dict.pop


class OwnSessions(EventTimeSessionWindows):
    """Sessions of a program's own, which are asked what to merge."""


def windows(state: Any, kind: type[Any] = EventTimeSessionWindows) -> MergingWindowSet:
    assigner: MergingWindowAssigner[Any, Any] = kind(1)
    return MergingWindowSet(assigner, ENCODING, state)


def contents_of(in_flight: MergingWindowSet, window: TimeWindow) -> TimeWindow | None:
    found = in_flight.contents_of(ENCODING.encode(window))
    return None if found is None else ENCODING.decode(found)


class Told(list[Merge]):
    def __call__(self, merge: Merge) -> None:
        self.append(merge)


def merge(
    result: TimeWindow, merged: list[TimeWindow], contents: TimeWindow, *others: TimeWindow
) -> Merge:
    encode = ENCODING.encode
    return Merge(
        result,
        encode(result),
        {encode(window): window for window in merged},
        encode(contents),
        [encode(window) for window in others],
    )


def add(in_flight: MergingWindowSet, start: int, end: int, told: Told) -> TimeWindow:
    window, namespace = in_flight.add(TimeWindow(start, end), told)
    assert ENCODING.decode(namespace) == window
    assert isinstance(window, TimeWindow)
    return window


def test_a_window_apart_from_all_others_keeps_its_own_contents() -> None:
    told, in_flight = Told(), windows(DictState())
    assert add(in_flight, 0, 10, told) == TimeWindow(0, 10)
    assert add(in_flight, 11, 20, told) == TimeWindow(11, 20)
    assert contents_of(in_flight, TimeWindow(11, 20)) == TimeWindow(11, 20)
    assert told == []


def test_a_window_inside_of_another_changes_nothing() -> None:
    told, in_flight = Told(), windows(DictState())
    add(in_flight, 0, 10, told)
    assert add(in_flight, 2, 8, told) == TimeWindow(0, 10)
    assert add(in_flight, 0, 10, told) == TimeWindow(0, 10)
    assert told == []


def test_a_window_that_grows_keeps_its_contents_where_they_are() -> None:
    told, in_flight = Told(), windows(DictState())
    first, grown = TimeWindow(0, 10), TimeWindow(0, 15)
    add(in_flight, 0, 10, told)
    assert add(in_flight, 10, 15, told) == grown
    assert contents_of(in_flight, grown) == first
    assert contents_of(in_flight, first) is None
    assert told == [merge(grown, [first], first)]


def test_a_window_between_two_brings_their_contents_together_under_the_earlier() -> None:
    told, in_flight = Told(), windows(DictState())
    late, early, whole = TimeWindow(20, 30), TimeWindow(0, 10), TimeWindow(0, 30)
    add(in_flight, 20, 30, told)
    add(in_flight, 0, 10, told)
    assert add(in_flight, 10, 20, told) == whole
    assert told == [merge(whole, [early, late], early, late)]


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12)


@given(SPANS)
def test_a_set_read_back_at_any_time_is_the_same(spans: list[tuple[int, int]]) -> None:
    state, kept_state = DictState(), DictState()
    kept, told = windows(kept_state), (Told(), Told())
    for start, length in spans:
        read_back = windows(state)
        end = start + length
        assert add(read_back, start, end, told[0]) == add(kept, start, end, told[1])
        assert state == kept_state
    assert told[0] == told[1]
    kept_under = [contents or window for window, contents in state.items()]
    assert len(set(kept_under)) == len(state), "no two windows share their contents"


@given(SPANS)
def test_what_touches_is_what_the_assigner_would_say(spans: list[tuple[int, int]]) -> None:
    state, asked_state = DictState(), DictState()
    quick, asked, told = windows(state), windows(asked_state, OwnSessions), (Told(), Told())
    for start, length in spans:
        end = start + length
        assert add(quick, start, end, told[0]) == add(asked, start, end, told[1])
    assert told[0] == told[1]
    assert state == asked_state
