"""The load of an attempt: what regions process, and when they have caught up."""

from __future__ import annotations

import pytest

from penstock.checkpoint.coordinator.load_tracker import (
    LoadTracker,
    busiest_region,
    load_between,
)
from penstock.ids import StageId

SOURCE, KEYED = StageId(0), StageId(1)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def load(clock: Clock) -> LoadTracker:
    return LoadTracker({SOURCE: [], KEYED: [SOURCE]}, clock)


def run(
    load: LoadTracker, clock: Clock, region: StageId, records: int, most: int, seconds: float = 1.0
) -> None:
    began = clock.now
    clock.now += seconds
    load.record_published(region, records, most, began, seconds * 0.8)


def test_only_records_of_sources_are_records_of_the_job(load: LoadTracker, clock: Clock) -> None:
    start = load.mark()
    run(load, clock, SOURCE, 100, 1000)
    run(load, clock, KEYED, 300, 1000, 3.0)
    found = load_between(start, load.mark(), busiest_region(start, load.mark()))
    assert (found.seconds, found.records) == (4.0, 100)
    assert (found.region_records, found.batches, found.busy_s) == (300, 1, 3.0)
    assert found.working_s == pytest.approx(2.4)


def test_a_job_has_caught_up_when_all_regions_took_everything_in_order(
    load: LoadTracker, clock: Clock
) -> None:
    run(load, clock, SOURCE, 1000, 1000)
    run(load, clock, KEYED, 10, 1000)  # everything, but the source is still behind
    assert load.catch_up is None
    run(load, clock, SOURCE, 1000, 1000)
    run(load, clock, SOURCE, 400, 1000)
    run(load, clock, KEYED, 1000, 1000)
    assert load.catch_up is None
    run(load, clock, KEYED, 500, 1000)
    found = load.catch_up
    assert found is not None
    # The keyed region worked as long as the source, which comes first.
    assert (found.began_s, found.caught_up_s, found.records) == (0.0, 6.0, 2400)


def test_a_micro_batch_that_began_before_its_input_was_complete_does_not_count(
    load: LoadTracker, clock: Clock
) -> None:
    began = clock.now
    run(load, clock, SOURCE, 10, 1000)
    load.record_published(KEYED, 10, 1000, began, 0.1)
    assert load.catch_up is None
    run(load, clock, KEYED, 10, 1000)
    assert load.catch_up is not None


def test_a_region_without_input_has_caught_up_once_it_had_results(
    load: LoadTracker, clock: Clock
) -> None:
    load.record_no_input(SOURCE)  # it may not know yet what there is
    load.record_no_input(KEYED)
    assert load.catch_up is None
    run(load, clock, SOURCE, 1000, 1000)
    load.record_no_input(SOURCE)
    run(load, clock, KEYED, 1000, 1000)
    load.record_no_input(KEYED)
    found = load.catch_up
    assert found is not None
    assert found.caught_up_s == 2.0


def test_the_catch_up_begins_when_the_slowest_region_gets_records(
    load: LoadTracker, clock: Clock
) -> None:
    run(load, clock, SOURCE, 500, 1000)
    run(load, clock, KEYED, 500, 1000, 9.0)
    found = load.catch_up
    assert found is not None
    assert (found.began_s, found.caught_up_s, found.records) == (1.0, 10.0, 500)


def test_a_micro_batch_above_the_normal_size_is_a_backlog(load: LoadTracker, clock: Clock) -> None:
    run(load, clock, SOURCE, 5000, 1000)
    run(load, clock, KEYED, 5000, 1000)
    assert load.catch_up is None


def test_micro_batches_without_records_are_no_results(load: LoadTracker, clock: Clock) -> None:
    run(load, clock, SOURCE, 0, 1000)
    load.record_no_input(SOURCE)
    assert load.catch_up is None


def test_the_first_catch_up_stays(load: LoadTracker, clock: Clock) -> None:
    run(load, clock, SOURCE, 10, 1000)
    run(load, clock, KEYED, 10, 1000)
    first = load.catch_up
    run(load, clock, SOURCE, 1000, 1000)
    run(load, clock, SOURCE, 10, 1000)
    assert load.catch_up == first


def test_times_count_from_the_start(load: LoadTracker, clock: Clock) -> None:
    clock.now += 50.0
    load.start()
    run(load, clock, SOURCE, 10, 1000)
    run(load, clock, KEYED, 10, 1000)
    found = load.catch_up
    assert found is not None
    assert (found.began_s, found.caught_up_s, found.records) == (0.0, 2.0, 10)


def test_an_attempt_without_regions_has_no_load(clock: Clock) -> None:
    load = LoadTracker({}, clock)
    start = load.mark()
    clock.now += 2
    found = load_between(start, load.mark(), busiest_region(start, load.mark()))
    assert (found.seconds, found.records, found.batches) == (2.0, 0, 0)
