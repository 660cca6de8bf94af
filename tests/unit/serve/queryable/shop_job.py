"""A job whose states can be looked up: orders of customers, in pairs that change together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.common import Configuration, JobClient, Types, WatermarkStrategy
from penstock.common.time import Duration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.testing.inline import run_inline
from tests.unit.cli.job_fixtures import slowly

CUSTOMERS = 10


class Orders(KeyedProcessFunction[int, int, int]):
    """Counts the orders of a customer, and remembers some of them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        count = ValueStateDescriptor("count", Types.LONG())
        count.set_queryable("orders")
        self.count = runtime_context.get_state(count)
        by_parity = MapStateDescriptor("by parity", Types.STRING(), Types.LONG())
        by_parity.set_queryable("by-parity")
        self.by_parity = runtime_context.get_map_state(by_parity)
        recent = ListStateDescriptor("recent", Types.LONG())
        recent.set_queryable("recent")
        recent.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
        self.recent = runtime_context.get_list_state(recent)
        self.secret = runtime_context.get_state(ValueStateDescriptor("secret", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        self.by_parity.put("odd" if value // CUSTOMERS % 2 else "even", value)
        self.recent.update([*list(self.recent.get())[-2:], value])
        self.secret.update(value)
        yield value


class Names(KeyedProcessFunction[int, int, int]):
    """Counts under keys that are texts."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("visits", Types.LONG())
        descriptor.set_queryable("visits")
        self.visits = runtime_context.get_state(descriptor)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.visits.update((self.visits.value() or 0) + 1)
        yield value


def shop(
    directory: Path, name: str = "shop", numbers: int = 10_000_000, **settings: str
) -> StreamExecutionEnvironment:
    """Return the environment of the job, which runs in this process."""
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(directory),
            "execution.checkpointing.interval": "100 ms",
            "penstock.micro-batch.max-records": "20",
            "penstock.job-id": name,
            **{key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()},
        }
    )
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    stream = (
        env.set_parallelism(2)
        .from_source(NumberSequenceSource(1, numbers), WatermarkStrategy.no_watermarks(), "numbers")
        .map(slowly, Types.LONG())
    )
    orders = stream.key_by(lambda n: n % CUSTOMERS, Types.LONG()).process(Orders(), Types.LONG())
    orders.uid("orders").sink_to(DiscardingSink())
    names = stream.key_by(lambda n: f"customer-{n % CUSTOMERS}", Types.STRING())
    names.process(Names(), Types.LONG()).uid("names").sink_to(DiscardingSink())
    return env


def start_shop(directory: Path, name: str = "shop", **settings: str) -> JobClient:
    """Start the job; it runs until it is cancelled or stopped."""
    return shop(directory, name, 10_000_000, **settings).execute_async(name)
