"""Ids of deliveries, kept small."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.acknowledging.seen_ids import IdRanges, SeenIds

numbers = st.lists(st.integers(0, 60), max_size=60)


@given(added=numbers, floor=st.integers(-1, 40), later=numbers)
def test_ranges_are_a_set_of_numbers(added: list[int], floor: int, later: list[int]) -> None:
    runs, expected = IdRanges(), set(added)
    for number in added:
        runs.add(number)
    runs.fill_up_to(floor)
    for number in later:
        runs.add(number)
    expected |= {*range(floor + 1), *later}
    assert {n for n in range(62) if n in runs} == expected
    borders = [border for run in runs.ranges() for border in run]
    assert borders == sorted(set(borders)), "runs that touch are one"
    twin = IdRanges.at_distances(runs.floor, runs.distances())
    assert (twin.floor, twin.ranges()) == (runs.floor, runs.ranges())


@given(st.lists(st.integers(0, 30)), st.integers(-1, 20), st.integers(-1, 40))
def test_numbers_outside_the_set_are_missing(added: list[int], floor: int, upto: int) -> None:
    runs = IdRanges()
    for number in added:
        runs.add(number)
    runs.fill_up_to(floor)
    missing = [n for start, end in runs.missing_up_to(upto) for n in range(start, end)]
    assert missing == [n for n in range(upto + 1) if n not in runs]


def test_numbers_in_any_order_become_one_range() -> None:
    shuffled = list(range(10_000))
    random.Random(7).shuffle(shuffled)
    runs = IdRanges()
    for number in shuffled:
        runs.add(number)
    assert runs.ranges() == [(0, 10_000)]


def test_many_numbers_with_gaps_fit_into_a_checkpoint() -> None:
    seen = SeenIds(lambda: 0.0, 60)
    seen.add(number * 3 + number % 2 for number in range(100_000))
    assert len(seen.encode()) < 100_000


def test_encoded_ids_are_known_after_decoding() -> None:
    seen = SeenIds(lambda: 0.0, 60)
    seen.add([5, 6, 9, "a", "ä\ud800"])
    twin = SeenIds(lambda: 0.0, 60)
    twin.decode(seen.encode())
    assert all(id_ in twin for id_ in (5, 6, 9, "a", "ä\ud800"))
    assert not any(id_ in twin for id_ in (4, 7, 8, 10, "b", "5"))


def test_acknowledged_names_are_known_for_a_while_but_not_in_checkpoints() -> None:
    seen = SeenIds(lambda: 0.0, 60)
    seen.add(["a", "b"])
    seen.acknowledged(["a"])
    assert "a" in seen
    twin = SeenIds(lambda: 0.0, 60)
    twin.decode(seen.encode())
    assert ("a" in twin, "b" in twin) == (False, True)


def test_unconfirmed_names_are_kept_as_long_as_they_may_be_redelivered() -> None:
    now = 0.0
    first = SeenIds(lambda: now, 60)
    first.add(["a"])
    now = 1_000.0  # the job was down for long: that does not count
    second = SeenIds(lambda: now, 60)
    second.decode(first.encode())
    now += 40
    third = SeenIds(lambda: now, 60)
    third.decode(second.encode())
    assert "a" in third
    now += 21
    fourth = SeenIds(lambda: now, 60)
    fourth.decode(third.encode())
    assert "a" not in fourth


def test_numbers_are_never_forgotten() -> None:
    seen = SeenIds(lambda: 0.0, 60)
    seen.add([1, 3, 5])
    seen.acknowledged([1, 3])
    seen.numbers.fill_up_to(3)
    twin = SeenIds(lambda: 1e9, 60)
    twin.decode(seen.encode())
    assert [number for number in range(7) if number in twin] == [0, 1, 2, 3, 5]
