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
from penstock.state.window_encoding import encoding_for
from penstock.task.window.merging import Merge, MergingWindowSet

ENCODING = encoding_for(TimeWindowSerializer())


class DictState(dict[Any, Any]):
    """As much of a map state as the set needs."""

    put = dict.__setitem__
    remove = dict.pop


class OwnSessions(EventTimeSessionWindows):
    """A custom session assigner that decides what to merge."""


def windows(state: Any, kind: type[Any] = EventTimeSessionWindows) -> MergingWindowSet:
    assigner: MergingWindowAssigner[Any, Any] = kind(1)
    return MergingWindowSet(assigner, ENCODING, state)


def contents_of(in_flight: MergingWindowSet, window: TimeWindow) -> TimeWindow | None:
    found = in_flight.contents_of(ENCODING.encode(window))
    return None if found is None else ENCODING.decode(found)


class Merges(list[Merge]):
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


def add(in_flight: MergingWindowSet, start: int, end: int, merges: Merges) -> TimeWindow:
    window, namespace = in_flight.add(TimeWindow(start, end), merges)
    assert ENCODING.decode(namespace) == window
    assert isinstance(window, TimeWindow)
    return window


def test_a_separate_window_keeps_its_own_contents() -> None:
    merges, in_flight = Merges(), windows(DictState())
    assert add(in_flight, 0, 10, merges) == TimeWindow(0, 10)
    assert add(in_flight, 11, 20, merges) == TimeWindow(11, 20)
    assert contents_of(in_flight, TimeWindow(11, 20)) == TimeWindow(11, 20)
    assert merges == []


def test_a_window_inside_of_another_changes_nothing() -> None:
    merges, in_flight = Merges(), windows(DictState())
    add(in_flight, 0, 10, merges)
    assert add(in_flight, 2, 8, merges) == TimeWindow(0, 10)
    assert add(in_flight, 0, 10, merges) == TimeWindow(0, 10)
    assert merges == []


def test_a_window_that_grows_keeps_its_contents_where_they_are() -> None:
    merges, in_flight = Merges(), windows(DictState())
    first, grown = TimeWindow(0, 10), TimeWindow(0, 15)
    add(in_flight, 0, 10, merges)
    assert add(in_flight, 10, 15, merges) == grown
    assert contents_of(in_flight, grown) == first
    assert contents_of(in_flight, first) is None
    assert merges == [merge(grown, [first], first)]


def test_a_window_between_two_merges_their_contents_into_the_earlier_one() -> None:
    merges, in_flight = Merges(), windows(DictState())
    late, early, whole = TimeWindow(20, 30), TimeWindow(0, 10), TimeWindow(0, 30)
    add(in_flight, 20, 30, merges)
    add(in_flight, 0, 10, merges)
    assert add(in_flight, 10, 20, merges) == whole
    assert merges == [merge(whole, [early, late], early, late)]


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12)


@given(SPANS)
def test_a_window_set_read_back_from_state_is_the_same(spans: list[tuple[int, int]]) -> None:
    state, kept_state = DictState(), DictState()
    kept, merges = windows(kept_state), (Merges(), Merges())
    for start, length in spans:
        read_back = windows(state)
        end = start + length
        assert add(read_back, start, end, merges[0]) == add(kept, start, end, merges[1])
        assert state == kept_state
    assert merges[0] == merges[1]
    kept_under = [contents or window for window, contents in state.items()]
    assert len(set(kept_under)) == len(state), "no two windows share their contents"


@given(SPANS)
def test_touching_windows_are_those_the_assigner_merges(spans: list[tuple[int, int]]) -> None:
    state, asked_state = DictState(), DictState()
    quick, asked, merges = windows(state), windows(asked_state, OwnSessions), (Merges(), Merges())
    for start, length in spans:
        end = start + length
        assert add(quick, start, end, merges[0]) == add(asked, start, end, merges[1])
    assert merges[0] == merges[1]
    assert state == asked_state
