"""Subtasks stay on their host unless new hosts are idle."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.submit.placement import ExecutorWatch, place_partitions

HOSTS = ["node-1", "node-2", "node-3", "node-4"]
cores_by_host = st.dictionaries(st.sampled_from(HOSTS), st.integers(1, 3), min_size=1)
homes_of_subtasks = st.lists(st.sampled_from([*HOSTS, None]), max_size=12)


def test_an_even_distribution_does_not_change() -> None:
    homes = ["node-1", "node-2", "node-2", "node-1"]
    assert place_partitions(homes, {"node-1": 1, "node-2": 1}) == homes


def test_a_new_host_gets_its_share_and_the_other_subtasks_stay() -> None:
    places = place_partitions(["node-1"] * 4, {"node-1": 1, "node-2": 1})
    assert places == ["node-1", "node-1", "node-2", "node-2"]


def test_a_host_with_twice_the_cores_gets_twice_as_many() -> None:
    places = place_partitions([None] * 6, {"node-1": 2, "node-2": 1})
    assert Counter(places) == {"node-1": 4, "node-2": 2}


def test_a_difference_of_one_is_no_reason_to_move() -> None:
    homes = ["node-1", "node-1", "node-2"]
    assert place_partitions(homes, {"node-1": 1, "node-2": 1}) == homes


def test_subtasks_of_a_lost_host_move_to_the_least_loaded_hosts() -> None:
    places = place_partitions(["node-1", "gone", "gone"], {"node-1": 1, "node-2": 1, "node-3": 1})
    assert places == ["node-1", "node-2", "node-3"]


@given(homes_of_subtasks, cores_by_host)
def test_no_host_has_more_than_its_share_and_no_subtask_moves_without_need(
    homes: list[str | None], cores: dict[str, int]
) -> None:
    places = place_partitions(homes, cores)
    assert len(places) == len(homes)
    assert set(places) <= set(cores)
    count = Counter(places)
    for host in count:
        for other in cores:
            assert count[host] / cores[host] <= (count[other] + 1) / cores[other]
    assert place_partitions(places, cores) == places
    kept = [i for i, home in enumerate(homes) if home in cores and places[i] != home]
    if len(set(cores.values())) == 1:
        most = -(-len(homes) // len(cores))
        before = Counter(home for home in homes if home in cores)
        assert len(kept) <= sum(max(0, n - len(homes) // len(cores)) for n in before.values())
        assert max(count.values(), default=0) <= most


# -- new executors -------------------------------------------------------------------------------


class Executors:
    """A cluster whose executors the test adds and removes."""

    def __init__(self, *known: str) -> None:
        self.now = 0.0
        self.alive = frozenset(known)
        self.looks = 0
        self.watch = ExecutorWatch(self._look, 2.0, lambda: self.now)

    def _look(self) -> frozenset[str]:
        self.looks += 1
        return self.alive

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.watch.have_joined()


def test_new_executors_are_reported_when_they_are_seen_twice() -> None:
    executors = Executors("node-1:1")
    executors.alive |= {"node-2:1"}
    assert not executors.after(2)
    assert executors.after(2)
    assert not executors.after(2), "reported once"


def test_executors_that_join_one_after_the_other_are_reported_once() -> None:
    executors = Executors("node-1:1")
    reported = []
    for number in range(2, 6):
        executors.alive |= {f"node-{number}:1"}
        reported.append(executors.after(2))
    reported.append(executors.after(2))
    assert reported == [False, False, False, False, True]


def test_a_lost_executor_is_not_reported_but_its_replacement_is() -> None:
    executors = Executors("node-1:1", "node-2:1")
    executors.alive = frozenset({"node-1:1"})
    assert not executors.after(2)
    assert not executors.after(2)
    executors.alive |= {"node-2:2"}
    assert not executors.after(2)
    assert executors.after(2)


def test_executors_are_listed_at_most_once_per_interval() -> None:
    executors = Executors("node-1:1")
    for _ in range(100):
        executors.after(0.1)
    assert executors.looks <= 6
