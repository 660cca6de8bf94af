"""What a barrier overtook, as it is recorded."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channel.log import END_OF_INPUT, UNBOUNDED, ChannelLog, Entry, EntryKind
from penstock.checkpoint.barriers.in_flight_data import InFlightData
from penstock.ids import ChannelId, CheckpointId
from tests.unit.checkpoint.barriers.one_stage import b, data, names

A, B = ChannelId(0), ChannelId(1)
THIRD = CheckpointId(3)


def recorded(*entries: Entry, at: int = 0) -> InFlightData:
    recording = InFlightData(THIRD, {A: at})
    recording.observe(A, at, entries)
    return recording


def test_all_data_up_to_the_barrier_is_recorded() -> None:
    found = recorded(data(name="x"), data(name="y"), b(3), data(name="z")).inputs[A]
    assert names(found.entries) == "x y"
    assert (found.start, found.end, found.is_closed) == (0, 2, True)


def test_positions_are_those_of_the_log() -> None:
    found = recorded(data(), b(3), at=7).inputs[A]
    assert (found.start, found.end) == (7, 8)


def test_entries_without_data_count_as_positions_and_are_not_recorded() -> None:
    found = recorded(b(1), data(name="x"), END_OF_INPUT, b(2), b(3)).inputs[A]
    assert names(found.entries) == "x"
    assert (found.end, found.is_closed) == (4, True)


def test_an_input_without_the_barrier_stays_open() -> None:
    recording = recorded(data(), END_OF_INPUT)
    assert not recording.is_complete
    recording.observe(A, 0, [data(), END_OF_INPUT, b(3)])
    assert recording.is_complete


def test_a_later_barrier_closes_an_input_too() -> None:
    found = recorded(data(name="x"), b(4), data(name="y")).inputs[A]
    assert (names(found.entries), found.is_closed) == ("x", True)


def test_it_is_complete_when_the_barrier_has_landed_in_every_input() -> None:
    recording = InFlightData(THIRD, {A: 0, B: 0})
    recording.observe(A, 0, [b(3)])
    assert not recording.is_complete
    recording.observe(B, 0, [data(), b(3)])
    assert recording.is_complete


def test_an_entry_is_recorded_once_however_often_it_is_observed() -> None:
    recording = InFlightData(THIRD, {A: 0})
    waiting = [data(name="x"), data(name="y")]
    for _ in range(3):
        recording.observe(A, 0, waiting)
    recording.observe(A, 1, [*waiting[1:], data(name="z")])
    assert names(recording.inputs[A].entries) == "x y z"


def test_a_closed_input_does_not_care_for_what_comes() -> None:
    recording = recorded(data(name="x"), b(3))
    recording.observe(A, 10, [data(name="y"), b(9)])
    assert names(recording.inputs[A].entries) == "x"


def test_what_was_consumed_unseen_is_noticed() -> None:
    recording = recorded(data())
    with pytest.raises(AssertionError, match="consumed unseen"):
        recording.observe(A, 2, [data(), b(3)])


def test_entries_are_compared_by_identity() -> None:
    mine, equal, later = data(name="x"), data(name="x"), data(name="y")
    recording = recorded(mine, b(3), later)
    assert recording.contains(A, mine)
    assert not recording.contains(A, equal)
    assert not recording.contains(A, later)


LOGS = st.lists(st.sampled_from(["data", "data", "end", "barrier"]), min_size=1, max_size=12)


@given(LOGS, st.data())
def test_at_any_pace_in_flight_data_is_what_is_between_snapshot_and_barrier(
    kinds: list[str], draws: st.DataObject
) -> None:
    """Appends, looks and consumption in any order, as long as all is seen before it is consumed."""
    ids = itertools.count(1)
    entries = [
        data(name=f"d{i}") if kind == "data" else END_OF_INPUT if kind == "end" else b(next(ids))
        for i, kind in enumerate(kinds)
    ]
    log, coming = ChannelLog(UNBOUNDED), list(entries)
    _append(log, coming, draws.draw(st.integers(0, len(coming))))
    start = draws.draw(st.integers(0, len(log.pending())))
    log.consume(start)
    # At the snapshot the stage has consumed no barrier of this checkpoint.
    checkpoint = CheckpointId(log.passed + draws.draw(st.integers(1, 2)))
    recording = InFlightData(checkpoint, {A: log.position})
    while True:
        recording.observe(A, log.position, log.pending())
        log.consume(draws.draw(st.integers(0, len(log.pending()))))
        if not coming:
            break
        _append(log, coming, draws.draw(st.integers(1, len(coming))))
    ends = [i for i, e in enumerate(entries) if (e.checkpoint or 0) >= checkpoint]
    end = ends[0] if ends else len(entries)
    found = recording.inputs[A]
    assert found.entries == [e for e in entries[start:end] if e.kind is EntryKind.DATA]
    assert (found.start, found.end, found.is_closed) == (start, end, bool(ends))


def _append(log: ChannelLog, coming: list[Entry], count: int) -> None:
    for _ in range(count):
        log.append(coming.pop(0))
