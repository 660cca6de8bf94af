"""Sales per minute, hour and day, some of which are late.

A window emits its sum when the watermark passes its end, and again for each sale that is up to an
hour late; later sales go to a side output. The last sums of all windows and the side output
together are all sales.
"""

from collections.abc import Iterable
from typing import Any

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.window import TumblingEventTimeWindows

MINUTE = 60_000
SALES = 120
SALE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])
TOO_LATE = OutputTag("too late", SALE)

Sale = tuple[str, int, int]
"""City, time, amount."""


def sale(number: int) -> Sale:
    """Return a sale per 2 minutes; every seventh is 40 minutes late, every eleventh 3 hours."""
    delay = 180 if number % 11 == 10 else 40 if number % 7 == 6 else 0
    return ("oslo" if number % 2 else "rome", (600 + 2 * number - delay) * MINUTE, 1 + number % 5)


class TimeOfSale(TimestampAssigner):
    def extract_timestamp(self, value: Sale, record_timestamp: int) -> int:
        return value[1]


class Sum(AggregateFunction[Sale, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Sale, accumulator: int) -> int:
        return accumulator + value[2]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Format(ProcessWindowFunction[int, str, str, Any]):
    """Formats a sum with the start of its window."""

    def process(self, key: str, context: Any, elements: Iterable[int]) -> Iterable[str]:
        minutes = context.window().start // MINUTE
        yield f"{key} {minutes // 60:02}:{minutes % 60:02} {sum(elements)}"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(sale, SALES, RateLimiterStrategy.per_second(60), SALE)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(5))
    sales = env.from_source(source, strategy.with_timestamp_assigner(TimeOfSale()), "sales")
    by_city = sales.key_by(lambda sold: sold[0], Types.STRING())
    for name, size in (("minute", Time.minutes(1)), ("hour", Time.hours(1)), ("day", Time.days(1))):
        sums = (
            by_city.window(TumblingEventTimeWindows.of(size))
            .allowed_lateness(60 * MINUTE)
            .side_output_late_data(TOO_LATE)
            .aggregate(Sum(), Format(), accumulator_type=Types.LONG(), output_type=Types.STRING())
        )
        sums.print(name)
        sums.get_side_output(TOO_LATE).print(f"too late for its {name}")
    env.execute("sales per minute, hour and day")
