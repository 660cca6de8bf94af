"""History on demand: a query of a customer is answered with the last three visits up to its time.

    penstock run examples/history.py

Visits and queries are two streams, and either may be faster. So both wait in state until the
watermark, the minimum of both streams, reaches their time; timers then process them in order. An
answer has the visits up to the time of its query and no later ones, however fast the streams are.
"""

import random
from collections.abc import Iterator

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.functions import KeyedCoProcessFunction
from penstock.datastream.state import ListStateDescriptor, MapState, MapStateDescriptor

LAST = 3
VISITS, QUERIES, CUSTOMERS = 600, 60, 7
TEXT, LONG = Types.STRING(), Types.LONG()

Event = tuple[int, int, str]
"""Customer, time, name."""
Context = KeyedCoProcessFunction.Context


def visit(number: int) -> Event:
    return random.Random(number).randrange(CUSTOMERS), 100 * number, f"visit-{number}"


def query(number: int) -> Event:
    return number % CUSTOMERS, 1000 * number + 500, f"query-{number}"


class TimeOfEvent(TimestampAssigner):
    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value[1]


class History(KeyedCoProcessFunction[int, Event, Event, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        get, names = runtime_context, Types.LIST(TEXT)
        self.last = get.get_list_state(ListStateDescriptor("last", TEXT))
        self.visits = get.get_map_state(MapStateDescriptor("visits", LONG, names))
        self.queries = get.get_map_state(MapStateDescriptor("queries", LONG, names))

    def process_element1(self, value: Event, ctx: Context) -> None:
        self.wait(self.visits, value, ctx)

    def process_element2(self, value: Event, ctx: Context) -> None:
        self.wait(self.queries, value, ctx)

    def wait(self, waiting: MapState[int, list[str]], event: Event, ctx: Context) -> None:
        _, at, name = event
        waiting.put(at, [*(waiting.get(at) or []), name])
        ctx.timer_service().register_event_time_timer(at)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[str]:
        last = [*self.last.get(), *(self.visits.get(timestamp) or [])][-LAST:]
        self.last.update(last)
        for name in self.queries.get(timestamp) or []:
            yield f"{name} of {ctx.get_current_key()}: {' '.join(last)}"
        for waiting in (self.visits, self.queries):
            waiting.remove(timestamp)


def events(env: StreamExecutionEnvironment, name: str, made: DataGeneratorSource) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return env.from_source(made, strategy.with_timestamp_assigner(TimeOfEvent()), name)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    event, pace = Types.TUPLE([LONG, LONG, TEXT]), RateLimiterStrategy.per_second
    visits = events(env, "visits", DataGeneratorSource(visit, VISITS, pace(200), event))
    queries = events(env, "queries", DataGeneratorSource(query, QUERIES, pace(60), event))
    by_customer = visits.connect(queries).key_by(lambda v: v[0], lambda q: q[0], LONG)
    by_customer.process(History(), TEXT).print()
    env.execute("history")
