"""Subtasks stay where they are unless hosts have come that have nothing to do."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.spreading import Newcomers, spread

HOSTS = ["node-1", "node-2", "node-3", "node-4"]
rooms = st.dictionaries(st.sampled_from(HOSTS), st.integers(1, 3), min_size=1)
homes_of_subtasks = st.lists(st.sampled_from([*HOSTS, None]), max_size=12)


def test_what_is_spread_evenly_stays() -> None:
    homes = ["node-1", "node-2", "node-2", "node-1"]
    assert spread(homes, {"node-1": 1, "node-2": 1}) == homes


def test_a_host_that_has_come_gets_its_share_and_the_others_stay() -> None:
    places = spread(["node-1"] * 4, {"node-1": 1, "node-2": 1})
    assert places == ["node-1", "node-1", "node-2", "node-2"]


def test_a_host_with_twice_the_cores_takes_twice_as_many() -> None:
    places = spread([None] * 6, {"node-1": 2, "node-2": 1})
    assert Counter(places) == {"node-1": 4, "node-2": 2}


def test_one_more_than_another_is_no_reason_to_move() -> None:
    homes = ["node-1", "node-1", "node-2"]
    assert spread(homes, {"node-1": 1, "node-2": 1}) == homes


def test_what_was_on_a_host_that_is_gone_goes_to_the_emptiest() -> None:
    places = spread(["node-1", "gone", "gone"], {"node-1": 1, "node-2": 1, "node-3": 1})
    assert places == ["node-1", "node-2", "node-3"]


@given(homes_of_subtasks, rooms)
def test_no_host_has_more_than_its_share_and_no_subtask_moves_for_nothing(
    homes: list[str | None], room: dict[str, int]
) -> None:
    places = spread(homes, room)
    assert len(places) == len(homes)
    assert set(places) <= set(room)
    count = Counter(places)
    for host in count:
        for other in room:
            assert count[host] / room[host] <= (count[other] + 1) / room[other]
    assert spread(places, room) == places
    kept = [i for i, home in enumerate(homes) if home in room and places[i] != home]
    if len(set(room.values())) == 1:
        most = -(-len(homes) // len(room))
        before = Counter(home for home in homes if home in room)
        assert len(kept) <= sum(max(0, n - len(homes) // len(room)) for n in before.values())
        assert max(count.values(), default=0) <= most


# -- who has come -------------------------------------------------------------------------------


class Executors:
    """A cluster whose executors come and go as the test says."""

    def __init__(self, *known: str) -> None:
        self.now = 0.0
        self.there = frozenset(known)
        self.looks = 0
        self.newcomers = Newcomers(self._look, 2.0, lambda: self.now)

    def _look(self) -> frozenset[str]:
        self.looks += 1
        return self.there

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.newcomers.have_come()


def test_newcomers_are_believed_when_they_are_seen_twice() -> None:
    executors = Executors("node-1:1")
    executors.there |= {"node-2:1"}
    assert not executors.after(2)
    assert executors.after(2)
    assert not executors.after(2), "told once"


def test_a_bunch_is_told_once() -> None:
    executors = Executors("node-1:1")
    told = []
    for number in range(2, 6):
        executors.there |= {f"node-{number}:1"}
        told.append(executors.after(2))
    told.append(executors.after(2))
    assert told == [False, False, False, False, True]


def test_an_executor_that_is_lost_is_no_news_and_one_that_takes_its_place_is() -> None:
    executors = Executors("node-1:1", "node-2:1")
    executors.there = frozenset({"node-1:1"})
    assert not executors.after(2)
    assert not executors.after(2)
    executors.there |= {"node-2:2"}
    assert not executors.after(2)
    assert executors.after(2)


def test_nobody_looks_too_often() -> None:
    executors = Executors("node-1:1")
    for _ in range(100):
        executors.after(0.1)
    assert executors.looks <= 6
