from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.nexmark.events import AUCTION, BID, DELAY_MS, FIRST_TIME, PERSON, Events

EVENTS = Events(count=10_000, events_per_file=3_000, rate=1_000, cache="unused")
LINES = list(EVENTS.lines())


def columns(kind: str) -> list[list[str]]:
    return [line.split(",") for line in LINES if line.startswith(kind)]


def test_the_same_seed_makes_the_same_events_and_another_seed_makes_others() -> None:
    assert list(EVENTS.lines()) == LINES
    assert list(replace(EVENTS, seed=8).lines()) != LINES


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    for start in range(0, len(LINES), 50):
        kinds = Counter(line[0] for line in LINES[start : start + 50])
        assert kinds == {PERSON: 1, AUCTION: 3, BID: 46}


def test_every_kind_of_event_has_its_columns_and_no_stray_comma() -> None:
    widths = {kind: {len(one) for one in columns(kind)} for kind in (PERSON, AUCTION, BID)}
    assert widths == {PERSON: {9}, AUCTION: {11}, BID: {8}}


def test_ids_of_people_and_auctions_are_unique() -> None:
    assert [int(one[2]) for one in columns(PERSON)] == list(range(1000, 1200))
    assert [int(one[2]) for one in columns(AUCTION)] == list(range(1000, 1600))


def test_event_time_advances_and_no_event_is_later_than_the_bound() -> None:
    times = [int(line.split(",", 2)[1]) for line in LINES]
    newest = FIRST_TIME
    late = 0
    for number, time in enumerate(times):
        assert time >= newest - DELAY_MS
        assert time <= FIRST_TIME + number
        late = max(late, newest - time)
        newest = max(newest, time)
    assert late > DELAY_MS // 2
    assert newest > FIRST_TIME + EVENTS.count - DELAY_MS


def test_half_of_the_bids_are_for_hot_auctions_and_most_come_from_hot_bidders() -> None:
    bids = columns(BID)
    hot_auctions = sum(int(one[2]) % 100 == 0 for one in bids) / len(bids)
    hot_bidders = sum(int(one[3]) % 100 == 1 for one in bids) / len(bids)
    assert hot_auctions == pytest.approx(0.5, abs=0.05)
    assert hot_bidders == pytest.approx(0.75, abs=0.05)


def test_files_hold_all_events_in_order_as_parts_and_as_a_whole(tmp_path: Path) -> None:
    events = replace(EVENTS, cache=str(tmp_path))
    events.generate()
    parts = sorted(events.parts.iterdir())
    assert parts == events.paths()
    assert len(parts) == 4
    text = "".join(f"{line}\n" for line in LINES)
    assert "".join(part.read_text() for part in parts) == text
    assert events.whole.read_text() == text
    ages = [part.stat().st_mtime for part in parts]
    assert ages == sorted(set(ages))
