"""Models fitted to histories: checkpoint cost, recovery time, load and consistency."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.checkpoint.history import CheckpointStatus, ExceptionRecord, LoadStats
from penstock.models import consistency, defaults
from penstock.models.checkpoint_cost import (
    assumed_checkpoint_cost,
    fit_checkpoint_cost,
    observe_checkpoints,
)
from penstock.models.consistency import measure_consistency
from penstock.models.job_model import assumed_job, fit_job, observed_interval
from penstock.models.load import CapacitySource, measure_load
from penstock.models.micro_batches import MicroBatches, fit_micro_batches
from penstock.models.recovery_time import (
    FailureKind,
    downtime,
    fit_recovery,
    measured_time_to_normal,
)
from tests.unit.models.histories import MB, checkpoint, history, recovery

# -- checkpoint cost ----------------------------------------------------------------------------


def test_the_four_parts_of_a_checkpoint_add_up_to_its_duration() -> None:
    (seen,) = observe_checkpoints([checkpoint(1, 100.0)])
    parts = (seen.snapshot_s, seen.barrier_s, seen.persist_s, seen.coordination_s)
    assert parts == pytest.approx((0.01, 0.2, 0.5, 0.05))
    assert sum(parts) == pytest.approx(seen.duration_s)


@given(st.floats(0, 5), st.floats(0, 5), st.floats(0, 5), st.floats(-1, 5))
def test_parts_add_up_even_if_clocks_differ(
    barrier: float, sync: float, async_: float, coordination: float
) -> None:
    record = checkpoint(
        1, 1.0, barrier_s=barrier, sync_s=sync, async_s=async_, coordination_s=coordination
    )
    (seen,) = observe_checkpoints([record])
    parts = (seen.snapshot_s, seen.barrier_s, seen.persist_s, seen.coordination_s)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(seen.duration_s)


def test_the_first_checkpoint_of_an_attempt_has_no_interval() -> None:
    records = [checkpoint(1, 100.0), checkpoint(2, 110.0), checkpoint(3, 130.0, attempt="a2")]
    assert [o.interval_s for o in observe_checkpoints(records)] == [None, 10.0, None]


def test_savepoints_and_failed_checkpoints_are_not_observed() -> None:
    failed = checkpoint(2, 110.0, status=CheckpointStatus.FAILED)
    savepoint = checkpoint(3, 120.0, kind="savepoint")
    records = [checkpoint(1, 100.0), failed, savepoint, checkpoint(4, 130.0)]
    assert [o.checkpoint for o in observe_checkpoints(records)] == [1, 4]
    assert fit_checkpoint_cost([failed, savepoint]) is None


def test_the_cost_per_byte_is_found_in_spite_of_a_noisy_history() -> None:
    sizes = [MB * (1 + n % 7) * 5 for n in range(40)]
    records = history(40, per_byte=2e-8, new_bytes=lambda n: sizes[n - 1], noise=0.1)
    model = fit_checkpoint_cost(records)
    assert model is not None
    assert model.persist.slope == pytest.approx(2e-8, rel=0.1)
    assert model.observations == 40


def test_a_checkpoint_of_another_size_than_all_before_is_predicted() -> None:
    small = history(20, new_bytes=lambda n: MB * (1 + n % 4))
    model = fit_checkpoint_cost(small)
    assert model is not None
    larger = model.for_state(full_bytes=1e12, change=10.0).at(10.0)
    assert larger.new_bytes == pytest.approx(10 * model.changed.at(10.0), rel=0.05)
    truth = 0.2 + 0.01 + 0.1 + larger.new_bytes * 1e-8 + 0.05
    assert larger.duration.value == pytest.approx(truth, rel=0.1)


@given(st.floats(0.1, 1e5), st.floats(1.0, 10.0))
def test_cost_and_duration_do_not_fall_with_the_interval(interval: float, factor: float) -> None:
    model = fit_checkpoint_cost(history(6, noise=0.3))
    assert model is not None
    short, long = model.at(interval), model.at(interval * factor)
    assert long.new_bytes >= short.new_bytes
    assert long.duration.value >= short.duration.value
    assert long.lost.value >= short.lost.value


def test_a_single_checkpoint_predicts_itself_with_a_wide_range() -> None:
    model = fit_checkpoint_cost([checkpoint(1, 100.0, new_bytes=100 * MB)])
    assert model is not None
    found = model.at(10.0).duration
    assert found.value == pytest.approx(0.76, rel=0.05)
    assert found.high >= 2 * found.value


def test_capacity_lost_is_what_micro_batches_take_longer_during_a_checkpoint() -> None:
    model = fit_checkpoint_cost(history(12, lost_s=0.3))
    assert model is not None
    assert model.at(10.0).lost.value == pytest.approx(0.3, rel=0.02)
    assert model.lost.observations == 12


def test_without_measured_load_the_lost_capacity_is_a_share_of_the_time_to_persist() -> None:
    model = fit_checkpoint_cost([checkpoint(n, 10.0 * n) for n in range(1, 5)])
    assert model is not None
    found = model.at(10.0)
    assert not found.lost.is_measured
    assert found.lost.value == pytest.approx(0.5 * defaults.LOST_SHARE_OF_PERSIST)


def test_a_job_that_does_not_exist_has_documented_costs() -> None:
    model = assumed_checkpoint_cost(1e9, 1e6, incremental=True)
    assert model.at(10.0).new_bytes == pytest.approx(1e7, rel=0.01)
    assert not model.at(10.0).duration.is_measured
    assert assumed_checkpoint_cost(1e9, 1e6, incremental=False).at(1.0).new_bytes == 1e9


# -- recovery -----------------------------------------------------------------------------------


def test_the_downtime_is_the_sum_of_five_medians() -> None:
    seen = [recovery(n, detect_s=1.0 + n % 3, redeploy_s=10.0) for n in range(2, 9)]
    found = fit_recovery(seen, [], FailureKind.DRIVER).at(100 * MB)
    assert found.downtime.value == pytest.approx(2.0 + 10.0 + 0.5 + 0.03, abs=0.01)
    assert found.until_processing.value == pytest.approx(found.downtime.value + 1.0)
    assert found.downtime.observations == 7


def test_state_is_loaded_at_the_measured_rate_per_byte() -> None:
    seen = [recovery(n, loaded_bytes=n * 100 * MB, load_state_s=0.2 + n * 0.1) for n in range(2, 9)]
    model = fit_recovery(seen, [], FailureKind.DRIVER)
    assert model.at(2000 * MB).load_state.value == pytest.approx(0.2 + 2.0)


def test_records_of_older_versions_get_their_size_from_the_checkpoint() -> None:
    seen = [recovery(n, checkpoint=n, loaded_bytes=0, load_state_s=float(n)) for n in (2, 3, 4)]
    records = [checkpoint(n, 10.0 * n, full_bytes=n * MB) for n in (2, 3, 4)]
    model = fit_recovery(seen, records, FailureKind.DRIVER)
    assert model.load_state.value(10 * MB) == pytest.approx(10.0)


def test_failures_inside_the_driver_do_not_predict_the_death_of_a_driver() -> None:
    seen = [recovery(n, cause="boom", detect_s=0.0, redeploy_s=0.1) for n in (2, 3, 4)]
    assert fit_recovery(seen, [], FailureKind.ATTEMPT).redeploy.value == 0.1
    driver = fit_recovery(seen, [], FailureKind.DRIVER)
    assert driver.redeploy.value == defaults.REDEPLOY_S
    assert not driver.redeploy.is_measured
    # State is loaded alike.
    assert driver.load_state.observations == 3


def test_a_start_from_a_snapshot_shows_how_long_a_driver_takes_to_deploy() -> None:
    seen = [recovery(1, cause="started from a snapshot", detect_s=0.0, redeploy_s=7.0)]
    model = fit_recovery(seen, [], FailureKind.DRIVER)
    assert (model.redeploy.value, model.detect.value) == (7.0, defaults.DETECT_S)
    assert model.observations == 0


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_larger_state_takes_no_less_time(one: float, other: float) -> None:
    model = fit_recovery([recovery(2)], [], FailureKind.DRIVER)
    less, more = sorted((one, other))
    assert model.at(less).downtime.value <= model.at(more).downtime.value


def test_the_measured_time_to_normal_is_the_downtime_and_the_catch_up() -> None:
    one = recovery(caught_up_s=21.0)
    assert measured_time_to_normal(one) == pytest.approx(downtime(one) + 21.0)
    assert measured_time_to_normal(recovery(caught_up_s=None)) is None


# -- load ---------------------------------------------------------------------------------------


def test_the_rate_is_that_of_the_typical_interval() -> None:
    records = history(10, rate=1000.0)
    found = measure_load(records, [])
    assert found.rate is not None
    assert found.rate.value == pytest.approx(1000.0)


def test_capacity_is_measured_in_catch_up_and_otherwise_estimated() -> None:
    records = history(10, rate=1000.0, fixed_s=0.1, per_record=0.0004, lost_s=0.0)
    caught_up = measure_load(records, [recovery(catch_up_began_s=1.0, caught_up_s=21.0)])
    assert caught_up.capacity is not None
    assert (caught_up.capacity.value, caught_up.source) == (2000.0, CapacitySource.CATCH_UP)
    assert caught_up.share == pytest.approx(0.5)
    estimated = measure_load(records, [])
    assert estimated.source is CapacitySource.MICRO_BATCHES
    assert estimated.capacity is not None
    # A batch of a second spends 0.1 s on itself and 0.9 s on 2,250 records.
    assert estimated.capacity.value == pytest.approx(0.9 / 0.0004, rel=0.1)
    assert not estimated.capacity.is_measured


def test_a_job_that_has_processed_a_rate_can_process_it() -> None:
    records = history(10, rate=3000.0, per_record=0.0001, lost_s=0.0)
    slow = recovery(catch_up_began_s=1.0, caught_up_s=21.0, catch_up_records=10_000)
    found = measure_load(records, [slow]).capacity
    assert found is not None
    assert found.value == pytest.approx(3000.0, rel=0.01)
    assert found.low <= found.value <= found.high


def test_the_range_of_the_load_is_that_of_rate_and_capacity() -> None:
    model = fit_job(history(10, rate=1000.0), [recovery()], [])
    assert model is not None
    found = model.load_range_at(10.0)
    assert found is not None
    assert found.value == model.load_at(10.0)
    assert found.low < found.value < found.high
    # One catch-up: the capacity may be half or twice of what it showed.
    assert found.high / found.value == pytest.approx(2.0, rel=0.05)
    normal = model.recovery.at(0.0).time_to_normal(found, 10.0)
    assert normal.low < normal.value < normal.high


def test_a_catch_up_of_one_micro_batch_shows_no_capacity() -> None:
    short = recovery(catch_up_began_s=1.0, caught_up_s=1.0, catch_up_records=0)
    assert measure_load(history(4), [short]).source is CapacitySource.MICRO_BATCHES


def test_histories_of_older_versions_show_no_load() -> None:
    found = measure_load([checkpoint(1, 1.0), checkpoint(2, 2.0)], [])
    assert (found.rate, found.capacity, found.share) == (None, None, None)
    assert found.source is CapacitySource.UNKNOWN


def test_micro_batches_have_a_fixed_cost_and_one_per_record_read() -> None:
    # The busiest region sees five records for each that is read.
    found = fit_micro_batches([LoadStats(10.0, 1000, 5000, 10, 2.0, 1.0)])
    assert found is not None
    assert (found.fixed_s, found.per_record_s) == pytest.approx((0.1, 0.001))
    assert found.highest_rate == pytest.approx(0.9 / 0.001)
    assert fit_micro_batches([LoadStats(10.0, 0, 0, 0)]) is None


def test_where_the_fixed_cost_exceeds_the_target_batches_are_twice_as_long() -> None:
    found = fit_micro_batches([LoadStats(10.0, 1000, 1000, 1, 3.0, 1.0)])
    assert found is not None
    assert found.longest_s == pytest.approx(4.0)
    assert found.highest_rate == pytest.approx(2.0 / 0.001 / 4.0)


@given(st.floats(0.001, 3), st.floats(1e-7, 1e-2), st.floats(0, 1e6), st.floats(1, 3))
def test_micro_batches_get_longer_with_the_rate_up_to_a_limit(
    fixed: float, per_record: float, rate: float, factor: float
) -> None:
    batches = MicroBatches(fixed, per_record)
    assert batches.duration(0.0) == pytest.approx(min(fixed, batches.longest_s))
    assert batches.duration(rate) <= batches.duration(rate * factor) <= batches.longest_s
    assert batches.highest_rate is not None
    assert batches.highest_rate <= 1 / per_record
    assert batches.duration(batches.highest_rate) == pytest.approx(batches.longest_s)


def test_barriers_wait_longer_behind_longer_micro_batches() -> None:
    records = []
    for number in range(1, 13):
        rate = 500.0 * (1 + number % 4)
        batch = 0.1 / (1 - 0.0004 * rate)
        load = LoadStats(
            10.0, round(rate * 10), round(rate * 10), round(10 / batch), 10.0, 0.004 * rate
        )
        records.append(checkpoint(number, 10.0 * number, barrier_s=1.5 * batch, load_before=load))
    model = fit_checkpoint_cost(records)
    assert model is not None
    assert model.barrier.slope == pytest.approx(1.5, rel=0.05)
    slow, fast = (model.for_state(rate=rate).at(10.0).barrier.value for rate in (500.0, 2000.0))
    assert fast / slow == pytest.approx(0.8 / 0.2, rel=0.1)


# -- the job ------------------------------------------------------------------------------------


def test_the_interval_of_a_job_is_that_of_its_newest_periodic_checkpoints() -> None:
    old = [checkpoint(n, 10.0 * n) for n in range(1, 8)]
    new = [checkpoint(10 + n, 1000 + 5.0 * n, attempt="a2") for n in range(12)]
    manual = [checkpoint(30, 1056.0, attempt="a2", kind="manual")]
    assert observed_interval([*old, *new, *manual]) == pytest.approx(5.0)
    assert observed_interval(old[:1]) is None


def test_a_capacity_measured_while_checkpointing_is_corrected_for_what_checkpoints_take() -> None:
    model = fit_job(history(12, 10.0, lost_s=1.0), [recovery()], [])
    assert model is not None
    assert model.load.share == pytest.approx(0.5)
    assert model.load_without_checkpoints == pytest.approx(0.45, rel=0.02)
    assert model.load_at(10.0) == pytest.approx(0.5, rel=0.02)
    at_two = model.load_at(2.0)
    assert at_two is not None
    assert at_two > 0.5


def test_a_job_without_completed_checkpoints_has_no_model() -> None:
    assert fit_job([], [recovery()], []) is None


def test_failures_per_day_need_three_failures() -> None:
    records = history(3)
    two = fit_job(records, [recovery(2, time=0.0), recovery(3, time=3600.0)], [])
    assert two is not None
    assert two.failures_per_day is None
    three = [recovery(n, time=43_200.0 * n) for n in (2, 3, 4)]
    model = fit_job(records, three, [])
    assert model is not None
    assert model.failures_per_day is not None
    assert model.failures_per_day.value == pytest.approx(2.0)


def test_a_higher_rate_changes_load_and_the_bytes_of_checkpoints() -> None:
    model = fit_job(history(12), [recovery()], [])
    assert model is not None
    doubled = model.at_rate(rate=2000.0)
    assert doubled.load.share == pytest.approx(1.0)
    before, after = model.cost.at(1.0).new_bytes, doubled.cost.at(1.0).new_bytes
    assert after == pytest.approx(2 * before, rel=0.01)


def test_a_job_before_it_exists_has_no_history_and_still_a_load() -> None:
    model = assumed_job(2e9, 1000.0, 4000.0)
    assert model.load.share == 0.25
    assert (model.interval_s, model.consistency, model.failures_per_day) == (None, None, None)
    assert math.isinf(assumed_job(2e9, None, None, incremental=False).cost.changed.rate)


# -- consistency --------------------------------------------------------------------------------


def exception(text: str) -> ExceptionRecord:
    return ExceptionRecord(1.0, "a1", None, "m", f"Traceback (most recent call last):\n{text}")


def test_without_events_the_guarantee_is_not_shown_by_anything() -> None:
    found = measure_consistency([], [], [])
    assert (found.exactly_once.low, found.exactly_once.high) == (0.0, 1.0)


def test_a_hundred_good_events_of_each_kind_show_little_more_than_nine_in_ten() -> None:
    records = history(100)
    recoveries = [recovery(n) for n in range(100)]
    found = measure_consistency(records, recoveries, [])
    assert found.exactly_once.value == 1.0
    assert 0.85 < found.exactly_once.low < 0.9
    assert found.exactly_once.low < found.sink.low


def test_failed_checkpoints_count_unless_the_attempt_ended() -> None:
    failed = [
        checkpoint(50 + n, 5000.0, status=CheckpointStatus.FAILED, failure=text)
        for n, text in enumerate(
            (
                "expired: it took",
                "subsumed: by 4",
                "job-stopping: the attempt ended",
                "async-failed: x",
            )
        )
    ]
    found = measure_consistency([*history(8), *failed], [], [])
    assert (found.checkpoint.successes, found.checkpoint.trials) == (8, 10)
    assert (found.sink.successes, found.sink.trials) == (8, 8)


@pytest.mark.parametrize(
    ("error", "factor"),
    [
        ("penstock.errors.checkpoints.CorruptMetadataError: chk-4", "checkpoint"),
        ("penstock.errors.kafka.LostRecordsError: topic 't'", "source"),
        ("penstock.errors.connectors.CommitFailedError: no", "sink"),
    ],
)
def test_errors_count_against_the_factor_that_they_belong_to(error: str, factor: str) -> None:
    found = measure_consistency(
        history(8), [recovery()], [exception(error), exception("ValueError: x")]
    )
    trials = {name: getattr(found, name) for name in ("checkpoint", "source", "sink")}
    failed = {name: p.trials - p.successes for name, p in trials.items()}
    assert failed == {**dict.fromkeys(trials, 0), factor: 1}


def test_the_errors_that_are_counted_exist_and_belong_to_one_factor() -> None:
    sets = consistency.CHECKPOINT_ERRORS, consistency.SOURCE_ERRORS, consistency.SINK_ERRORS
    assert all(hasattr(errors, name) for names in sets for name in names)
    assert sum(map(len, sets)) == len(frozenset().union(*sets))
