from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.job.sizing import SizeLimits, next_size

LIMITS = SizeLimits(target_seconds=0.5, initial=1000, maximum=100_000)

sizes = st.integers(LIMITS.minimum, LIMITS.maximum)
seconds = st.floats(0.001, 100)


@settings(max_examples=50)
@given(sizes, st.integers(0, 200_000), seconds)
def test_sizes_stay_within_their_limits_and_change_in_steps(
    size: int, records: int, took: float
) -> None:
    after = next_size(size, records, took, LIMITS)
    assert LIMITS.minimum <= after <= LIMITS.maximum
    assert after <= size * 4
    assert after >= int(size * 0.5) or after == LIMITS.minimum


@settings(max_examples=50)
@given(sizes, seconds)
def test_a_full_batch_that_was_too_slow_makes_the_next_smaller(size: int, took: float) -> None:
    after = next_size(size, size, took, LIMITS)
    if took > LIMITS.target_seconds:
        assert after <= size
    else:
        assert after >= min(size, LIMITS.maximum) - 1


@settings(max_examples=20)
@given(sizes, st.floats(0.001, 0.5))
def test_a_batch_that_was_not_full_says_nothing(size: int, took: float) -> None:
    assert next_size(size, size // 3, took, LIMITS) == size
    assert next_size(size, 0, took, LIMITS) == size


def test_sizes_settle_where_the_target_is_met() -> None:
    size = LIMITS.initial
    for _ in range(20):
        size = next_size(size, size, 0.01 + size * 1e-5, LIMITS)
    assert abs(0.01 + size * 1e-5 - LIMITS.target_seconds) < 0.01
