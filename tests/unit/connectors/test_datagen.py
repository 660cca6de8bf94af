import time
from pathlib import Path

import pytest

from penstock.common import Types
from penstock.connectors.contracts.source import EnumeratorContext, ReadPlan, SplitRange
from penstock.connectors.indexed_sources import DataGeneratorSource, RateLimiterStrategy


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def size_of(plan: ReadPlan) -> int:
    return sum(part.end - part.start for ranges in plan for part in ranges)


def test_records_are_generated_from_their_index() -> None:
    source = DataGeneratorSource(str, 10, type_info=Types.STRING())
    assert list(source.read(SplitRange("0", 3, 6))) == [["3", "4", "5"]]
    assert source.type_info() == Types.STRING()


def test_the_rate_limits_how_far_plans_go() -> None:
    clock = Clock()
    source = DataGeneratorSource(str, 1000, RateLimiterStrategy.per_second(10))
    enumerator = source.enumerator(
        EnumeratorContext(1, Path(), time.time, lambda: None, monotonic=clock)
    )
    enumerator.start({})
    assert enumerator.plan(100) == []
    assert enumerator.next_poll() == pytest.approx(0.1)
    clock.now += 0.5
    assert size_of(enumerator.plan(100)) == 5
    clock.now += 60
    assert size_of(enumerator.plan(100)) == 10, "a pause allows a second's worth, not more"


def test_a_rate_below_one_per_second_still_lets_records_through() -> None:
    clock = Clock()
    source = DataGeneratorSource(str, 1000, RateLimiterStrategy.per_second(0.1))
    enumerator = source.enumerator(
        EnumeratorContext(1, Path(), time.time, lambda: None, monotonic=clock)
    )
    enumerator.start({})
    clock.now += 10
    assert enumerator.next_poll() == 0.0
    assert size_of(enumerator.plan(100)) == 1


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="got -1"):
        DataGeneratorSource(str, -1)
    with pytest.raises(ValueError, match="got 0 per second"):
        RateLimiterStrategy.per_second(0)
