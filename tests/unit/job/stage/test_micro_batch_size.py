from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.job.stage.micro_batch_size import SizeLimits, is_light, next_size, size_for_consumers

LIMITS = SizeLimits(target_seconds=0.5, initial=10_000, maximum=100_000)

sizes = st.integers(LIMITS.minimum, LIMITS.maximum)
fixed_costs = st.floats(0, 10)
seconds = st.floats(0.001, 100)


def settled(fixed: float, per_record: float) -> int:
    size = LIMITS.initial
    for _ in range(20):
        work = size * per_record
        size = next_size(size, size, fixed + work, work, LIMITS)
    return size


@settings(max_examples=20)
@given(sizes, st.integers(0, 200_000), fixed_costs, seconds)
def test_sizes_stay_within_their_limits_and_change_in_steps(
    size: int, records: int, fixed: float, work: float
) -> None:
    after = next_size(size, records, fixed + work, work, LIMITS)
    assert LIMITS.minimum <= after <= LIMITS.maximum
    assert int(min(size, records) * 0.5) <= after <= size * 4 or after == LIMITS.minimum


@settings(max_examples=20)
@given(sizes, seconds)
def test_a_full_batch_that_was_too_slow_makes_the_next_smaller(size: int, took: float) -> None:
    after = next_size(size, size, took, took, LIMITS)
    if took > LIMITS.target_seconds:
        assert after <= size
    else:
        assert after >= size - 1


@settings(max_examples=20)
@given(sizes, st.floats(0.001, 0.5))
def test_a_micro_batch_that_was_not_full_keeps_the_size(size: int, took: float) -> None:
    assert next_size(size, size // 3, took, took, LIMITS) == size
    assert next_size(size, 0, took, took, LIMITS) == size


def test_sizes_converge_to_the_target_duration() -> None:
    assert abs(0.05 + settled(fixed=0.05, per_record=1e-5) * 1e-5 - 0.5) < 0.01


def test_micro_batches_do_not_shrink_because_of_fixed_cost() -> None:
    assert abs(settled(fixed=0.6, per_record=1e-5) * 1e-5 - 0.6) < 0.01


def test_a_maximum_below_the_minimum_wins() -> None:
    assert next_size(10, 10, 0.1, 0.1, SizeLimits(0.5, 10, 10)) == 10


def test_a_stage_emits_no_more_at_once_than_its_consumers_prefer() -> None:
    assert size_for_consumers(50_000, [(20_000, 2.0), (40_000, 1.0)], LIMITS) == 10_000
    assert size_for_consumers(50_000, [], LIMITS) == 50_000
    assert size_for_consumers(50_000, [(10, 1.0)], LIMITS) == LIMITS.minimum


def test_a_micro_batch_is_light_if_it_was_not_full_and_mostly_fixed_cost() -> None:
    assert is_light(size=1000, records=10, seconds=0.08, working_seconds=0.005)
    assert not is_light(size=1000, records=500, seconds=0.08, working_seconds=0.005)
    assert not is_light(size=1000, records=10, seconds=0.08, working_seconds=0.02)
