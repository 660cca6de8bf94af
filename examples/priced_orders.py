"""Orders joined with the prices of their items: two sources of different speed, joined by key.

    penstock run examples/priced_orders.py DIRECTORY [ORDERS]
    penstock run -D execution.checkpointing.unaligned.enabled=true \
        examples/priced_orders.py DIRECTORY

Orders arrive fast, new prices rarely; the ledger after the join is slow, so that orders pile up
before it. `make demo-barriers` runs both commands and compares their checkpoints.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.datastream.functions import KeyedCoProcessFunction
from penstock.datastream.state import ValueStateDescriptor

ORDERS, PRICES, ITEMS = 18_000, 100, 50
TEXT, LONG = Types.STRING(), Types.LONG()
EVENT = Types.TUPLE([TEXT, LONG])
Event = tuple[str, int]  # name, item
Context = KeyedCoProcessFunction.Context


class AtItsPrice(KeyedCoProcessFunction[int, Event, Event, str]):
    """Numbers the events of an item, and adds its last price."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.price = runtime_context.get_state(ValueStateDescriptor("price", TEXT))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", LONG))

    def process_element1(self, value: Event, ctx: Context) -> Iterator[str]:
        yield self.line(*value)

    def process_element2(self, value: Event, ctx: Context) -> Iterator[str]:
        self.price.update(value[0])
        yield self.line(*value)

    def line(self, name: str, item: int) -> str:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        return f"{name},{item},{number},{self.price.value()}"


def book(line: str) -> str:
    time.sleep(0.0005)
    return line


def events(env: StreamExecutionEnvironment, name: str, count: int, rate: float) -> DataStream:
    source = DataGeneratorSource(
        lambda number: (f"{name}-{number}", number * 7 % ITEMS),
        count,
        RateLimiterStrategy.per_second(rate),
        EVENT,
    )
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)


def main(directory: Path, count: int) -> None:
    settings = {
        "execution.checkpointing.dir": f"{directory}/checkpoints",
        "penstock.micro-batch.max-records": "250",
        "penstock.channel.max-micro-batches": "14",
        "spark.master": "local[4,4]",  # one slot for each stage: most of the time they are idle
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(1)
    env.enable_checkpointing(2000)
    orders, prices = events(env, "order", count, 10_000), events(env, "price", PRICES, 5)
    by_item = orders.connect(prices).key_by(lambda o: o[1], lambda p: p[1], LONG)
    lines = by_item.process(AtItsPrice(), TEXT).name("at its price").uid("join")
    files = (
        FileSink.for_row_format(directory / "finished", Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    booked = lines.rebalance().map(book, TEXT).name("ledger").uid("ledger")
    booked.sink_to(files).name("files").uid("files")
    env.execute("priced orders")


if __name__ == "__main__":
    place, *numbers = sys.argv[1:] or ["priced-orders"]
    main(Path(place), int(numbers[0]) if numbers else ORDERS)
