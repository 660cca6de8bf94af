from typing import Any

from penstock.common import Duration, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner


class First(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0])


def test_ascending_timestamps_allow_no_lateness() -> None:
    assert WatermarkStrategy.for_monotonous_timestamps().max_out_of_orderness == Duration(0)
    assert WatermarkStrategy.no_watermarks().max_out_of_orderness is None


def test_a_strategy_holds_everything_it_was_given() -> None:
    assigner = First()
    strategy = (
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        .with_timestamp_assigner(assigner)
        .with_idleness(Duration.of_minutes(1))
        .with_watermark_alignment("g", Duration.of_seconds(20))
    )
    assert strategy.max_out_of_orderness == Duration.of_seconds(5)
    assert strategy.timestamp_assigner is assigner
    assert strategy.idle_timeout == Duration.of_minutes(1)
    assert strategy.alignment is not None
    assert strategy.alignment.update_interval == Duration.of_seconds(1)
