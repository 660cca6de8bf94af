from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.channel.log import (
    END_OF_INPUT,
    UNBOUNDED,
    Bounds,
    ChannelLog,
    Entry,
    EntryKind,
    barrier,
    entries_to_take,
)
from penstock.channel.segment import Segment, Slice
from penstock.ids import CheckpointId


def data(rows: int, size: int = 1) -> Entry:
    return Entry(EntryKind.DATA, (Segment("name", size, [[Slice(0, size, rows, 0)]]),))


def test_a_log_is_full_by_records_or_by_bytes() -> None:
    for entry in (data(rows=10), data(rows=1, size=100)):
        log = ChannelLog(Bounds(max_records=10, max_bytes=100))
        assert not log.is_full()
        log.append(entry)
        assert log.is_full()
        log.consume(1)
        assert not log.is_full()


def test_an_unbounded_log_is_never_full() -> None:
    log = ChannelLog(UNBOUNDED)
    log.append(data(rows=10**15, size=10**15))
    assert not log.is_full()


def test_the_end_of_input_does_not_count_against_the_bound() -> None:
    log = ChannelLog(Bounds(1, 1))
    log.append(END_OF_INPUT)
    assert not log.is_full()


def test_the_end_of_input_is_known_before_and_after_it_is_consumed() -> None:
    log = ChannelLog(UNBOUNDED)
    log.append(data(1))
    assert (log.is_complete(), log.has_ended) == (False, False)
    log.append(END_OF_INPUT)
    assert (log.is_complete(), log.has_ended) == (True, False)
    assert log.consume(2) == [data(1), END_OF_INPUT]
    assert (log.is_complete(), log.has_ended, log.pending()) == (True, True, ())


def test_barriers_after_the_end_count_against_no_bound() -> None:
    log = ChannelLog(Bounds(1, 1))
    for entry in (END_OF_INPUT, barrier(CheckpointId(1)), barrier(CheckpointId(2))):
        log.append(entry)
    assert not log.is_full()
    assert log.consume(1) == [END_OF_INPUT]
    assert [e.checkpoint for e in log.pending()] == [1, 2]
    assert log.has_ended


def test_a_log_knows_its_pending_bytes() -> None:
    log = ChannelLog(UNBOUNDED)
    for entry in (data(1, size=10), barrier(CheckpointId(1)), data(1, size=5)):
        log.append(entry)
    assert log.size == 15
    log.consume(2)
    assert log.size == 5


@pytest.mark.parametrize(
    ("entries", "taken"),
    [
        ([], 0),
        ([data(100)], 1),
        ([data(100), data(1)], 1),
        ([data(4), data(6), data(1)], 2),
        ([data(4), END_OF_INPUT], 2),
        ([END_OF_INPUT], 1),
        ([data(11), END_OF_INPUT], 2),
    ],
)
def test_a_micro_batch_reads_whole_entries_while_they_fit(entries: list[Entry], taken: int) -> None:
    assert entries_to_take(entries, max_records=10) == taken


@settings(max_examples=20)
@given(st.lists(st.integers(1, 50), max_size=8), st.integers(1, 60))
def test_only_a_first_entry_may_exceed_the_limit(rows: list[int], limit: int) -> None:
    entries = [data(n) for n in rows]
    count = entries_to_take(entries, limit)
    assert (count > 0) == bool(entries)
    assert count <= 1 or sum(rows[:count]) <= limit
    assert count == len(rows) or sum(rows[: count + 1]) > limit


def test_a_limit_on_entries_limits_data_but_not_the_end_of_input() -> None:
    assert entries_to_take([data(1), data(1), END_OF_INPUT], 10, most=1) == 1
    assert entries_to_take([data(1), END_OF_INPUT], 10, most=1) == 2
