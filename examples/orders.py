"""Orders of two shops: a total per customer, a number per region, into files, exactly once.

    penstock run --supervise examples/orders.py DIRECTORY

DIRECTORY may be in a store, such as s3://bucket/orders. Kill its driver with -9 as often as you
like: it is restarted and resumes from its last checkpoint. `make demo` does so, and then verifies
that the files hold every order exactly once.
"""

import sys
from collections.abc import Iterator

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

SHOPS = {"web": (5_600, 280), "store": (2_400, 160)}  # orders in all, orders per second
TEXT, LONG = Types.STRING(), Types.LONG()

Order = tuple[str, str, str, int]  # id, customer, region, cents
WithTotal = tuple[str, str, str, int, int]


def line(shop: str, number: int) -> str:
    customer = number * 7919 % 997
    region = ("north", "east", "south", "west")[customer % 4]
    return f"{shop}-{number},c{customer},{region},{number * 31 % 9000 + 100}"


def parse(text: str) -> Order:
    order, customer, region, cents = text.split(",")
    return order, customer, region, int(cents)


class TotalOfCustomer(KeyedProcessFunction[str, Order, WithTotal]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", LONG))

    def process_element(
        self, value: Order, ctx: KeyedProcessFunction.Context
    ) -> Iterator[WithTotal]:
        total = (self.total.value() or 0) + value[3]
        self.total.update(total)
        yield *value, total


class NumberInRegion(KeyedProcessFunction[str, WithTotal, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", LONG))

    def process_element(self, value: WithTotal, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield ",".join(map(str, (*value, number)))


def orders_of(shop: str, env: StreamExecutionEnvironment) -> DataStream:
    count, rate = SHOPS[shop]
    pace = RateLimiterStrategy.per_second(rate)
    source = DataGeneratorSource(lambda number: line(shop, number), count, pace, TEXT)
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), f"{shop} orders")
    return lines.uid(shop).map(parse, Types.TUPLE([TEXT, TEXT, TEXT, LONG])).name("parse")


def main(directory: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.checkpointing.dir": f"{directory}/checkpoints"})
    )
    env.enable_checkpointing(1000)
    files = (
        FileSink.for_row_format(f"{directory}/finished", Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    with_total = Types.TUPLE([TEXT, TEXT, TEXT, LONG, LONG])
    orders = orders_of("web", env).union(orders_of("store", env))
    totals = orders.key_by(lambda order: order[1], TEXT).process(TotalOfCustomer(), with_total)
    numbered = totals.name("total").uid("total").key_by(lambda order: order[2], TEXT)
    numbers = numbered.process(NumberInRegion(), TEXT).name("number").uid("number")
    numbers.sink_to(files).name("files").uid("files")
    env.execute("orders")


if __name__ == "__main__":
    main([*sys.argv[1:], "orders"][0])
