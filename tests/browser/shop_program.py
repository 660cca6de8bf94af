"""A job for the dashboard: two sources, a skewed keyed step that is the bottleneck, and a sink.

`python -m tests.browser.shop_program CHECKPOINTS OUTPUT [FAIL_AT [spark]]`; with FAIL_AT its keyed
step fails once, when a customer owes so much. Unless the last word is `spark` it runs without it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.common import Configuration, Duration, Encoder, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedCoProcessFunction, RuntimeContext
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.testing.inline import run_inline

CUSTOMERS = 400


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return int(time.time() * 1000) - 1500


class Totals(KeyedCoProcessFunction):  # type: ignore[type-arg]
    """The total of each customer, with payments subtracted."""

    def __init__(self, marker: str, fail_at: int) -> None:
        self.marker = Path(marker)
        self.fail_at = fail_at

    def open(self, runtime_context: RuntimeContext) -> None:
        total = ValueStateDescriptor("total", Types.LONG())
        total.set_queryable("totals")
        self.total = runtime_context.get_state(total)
        self.recent = runtime_context.get_list_state(
            ListStateDescriptor("recent orders", Types.LONG())
        )

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[str]:
        time.sleep(0.0004)
        total = (self.total.value() or 0) + value % 90
        self.total.update(total)
        recent = [*(self.recent.get() or []), value][-20:]
        self.recent.update(recent)
        if self.fail_at and total > self.fail_at and not self.marker.exists():
            self.marker.touch()
            message = f"customer {customer(value)} owes {total} cents, more than the limit"
            raise ValueError(message)
        yield f"{customer(value)},{total}"

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[str]:
        self.total.update(max(0, (self.total.value() or 0) - value % 60))
        yield f"{customer(value)},{self.total.value()}"


def customer(number: int) -> int:
    # A third of all orders are from one customer: the data is skewed.
    return 7 if number % 3 == 0 else number * 7919 % CUSTOMERS


def main(checkpoints: str, output: str, fail_at: int, *, on_spark: bool) -> None:
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": checkpoints,
            "execution.checkpointing.savepoint-dir": f"{output}-savepoints",
            "execution.checkpointing.interval": "1500 ms",
            "execution.checkpointing.num-retained": "3",
            "penstock.micro-batch.max-records": "120",
            "penstock.job-id": "shop-orders",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "100",
            "restart-strategy.fixed-delay.delay": "300 ms",
            "execution.checkpointing.incremental": "true",
            "state.backend.type": "rocksdb",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    if not on_spark:
        env = run_inline(env)
    env.set_parallelism(4)
    times = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    watermarks = times.with_timestamp_assigner(Seconds())
    orders = env.from_source(NumberSequenceSource(1, 10**9), watermarks, "orders")
    payments = env.from_source(NumberSequenceSource(1, 10**9), watermarks, "payments")
    parsed = orders.map(lambda n: n, Types.LONG()).name("parse order").uid("orders")
    paid = payments.map(lambda n: n, Types.LONG()).name("parse payment").uid("payments")
    sink = FileSink.for_row_format(output, Encoder.simple_string_encoder()).build()
    (
        parsed.connect(paid)
        .key_by(customer, customer, Types.LONG())
        .process(Totals(f"{output}-failed", fail_at), Types.STRING())
        .name("totals per customer")
        .uid("totals")
        .sink_to(sink)
        .name("files")
        .uid("files")
    )
    env.execute("shop orders")


if __name__ == "__main__":
    fail_at = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    main(sys.argv[1], sys.argv[2], fail_at, on_spark="spark" in sys.argv[4:])
