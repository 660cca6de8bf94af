"""The set of windows in flight: which window a record is in, and where its contents lie."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.datastream.window import EventTimeSessionWindows, TimeWindow, TimeWindowSerializer
from penstock.state.window_bytes import encoding_for
from penstock.task.window.merging import Merge, MergingWindowSet, StoredWindows


class DictState(dict[Any, Any]):
    """As much of a map state as the set needs."""

    put = dict.__setitem__
    remove = dict.pop


def windows(state: Any) -> MergingWindowSet:
    stored = StoredWindows(encoding_for(TimeWindowSerializer()))
    return MergingWindowSet(EventTimeSessionWindows(1), stored, state)


class Told(list[Merge]):
    def __call__(self, merge: Merge) -> None:
        self.append(merge)


def test_a_window_apart_from_all_others_keeps_its_own_contents() -> None:
    told, in_flight = Told(), windows(DictState())
    assert in_flight.add(TimeWindow(0, 10), told) == TimeWindow(0, 10)
    assert in_flight.add(TimeWindow(11, 20), told) == TimeWindow(11, 20)
    assert in_flight.state_window(TimeWindow(11, 20)) == TimeWindow(11, 20)
    assert told == []


def test_a_window_inside_of_another_changes_nothing() -> None:
    told, in_flight = Told(), windows(DictState())
    in_flight.add(TimeWindow(0, 10), told)
    assert in_flight.add(TimeWindow(2, 8), told) == TimeWindow(0, 10)
    assert in_flight.add(TimeWindow(0, 10), told) == TimeWindow(0, 10)
    assert told == []


def test_a_window_that_grows_keeps_its_contents_where_they_are() -> None:
    told, in_flight = Told(), windows(DictState())
    first, grown = TimeWindow(0, 10), TimeWindow(0, 15)
    in_flight.add(first, told)
    assert in_flight.add(TimeWindow(10, 15), told) == grown
    assert in_flight.state_window(grown) == first
    assert in_flight.state_window(first) is None
    assert told == [Merge(grown, [first], first, [])]


def test_a_window_between_two_brings_their_contents_together_under_the_earlier() -> None:
    told, in_flight = Told(), windows(DictState())
    late, early, whole = TimeWindow(20, 30), TimeWindow(0, 10), TimeWindow(0, 30)
    in_flight.add(late, told)
    in_flight.add(early, told)
    assert in_flight.add(TimeWindow(10, 20), told) == whole
    assert told == [Merge(whole, [early, late], early, [late])]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12))
def test_a_set_read_back_at_any_time_is_the_same(spans: list[tuple[int, int]]) -> None:
    state, kept_state = DictState(), DictState()
    kept, told = windows(kept_state), (Told(), Told())
    for start, length in spans:
        window = TimeWindow(start, start + length)
        read_back = windows(state)
        assert read_back.add(window, told[0]) == kept.add(window, told[1])
        assert state == kept_state
    assert told[0] == told[1]
    assert len(set(state.values())) == len(state), "no two windows share their contents"
