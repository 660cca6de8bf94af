import pytest

from penstock.common import Duration, Instant, Time


def test_durations_of_equal_length_are_equal() -> None:
    assert Duration.of_days(1) == Duration.of_hours(24) == Duration.of_minutes(1440)
    assert Duration.of_seconds(1) == Duration.of_millis(1000) == Duration.of_nanos(10**9)
    assert Duration.of_nanos(1_999_999).to_millis() == 1


def test_times_of_equal_length_are_equal_and_print_milliseconds() -> None:
    assert Time.days(1) == Time.hours(24) == Time.minutes(1440) == Time.seconds(86400)
    assert hash(Time.seconds(1)) == hash(Time.milliseconds(1000))
    assert Time.seconds(1).to_milliseconds() == 1000
    assert str(Time.seconds(1)) == "1000 ms"


@pytest.mark.parametrize("millis", [0, 1500, -1, -1500, 1_700_000_000_123])
def test_instants_keep_milliseconds_on_both_sides_of_the_epoch(millis: int) -> None:
    assert Instant.of_epoch_milli(millis).to_epoch_milli() == millis


def test_instant_prints_as_pyflinks() -> None:
    assert repr(Instant.of_epoch_milli(-1)) == "Instant<-1, 999000000>"
