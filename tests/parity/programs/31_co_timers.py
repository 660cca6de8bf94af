"""Timers of connected and united streams: one clock for both, that of the slower one."""
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Match(KeyedCoProcessFunction):
    """A payment should follow its order within a second."""

    def open(self, runtime_context):
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.LONG()))
        self.paid = runtime_context.get_state(ValueStateDescriptor("paid", Types.LONG()))

    def process_element1(self, value, ctx):
        self.order.update(value[1])
        ctx.timer_service().register_event_time_timer(value[1] + 1000)

    def process_element2(self, value, ctx):
        self.paid.update(value[1])
        ctx.timer_service().register_event_time_timer(value[1] + 1000)

    def on_timer(self, timestamp, ctx):
        order, paid = self.order.value(), self.paid.value()
        yield (
            f"{ctx.get_current_key()} at {timestamp} ({ctx.timestamp()}, {ctx.time_domain().name}): "
            f"ordered {order}, paid {paid}, in time {bool(order and paid and paid - order <= 1000)}"
        )


class Times(KeyedProcessFunction):
    def open(self, runtime_context):
        self.per_time = runtime_context.get_map_state(
            MapStateDescriptor("per time", Types.LONG(), Types.INT())
        )

    def process_element(self, value, ctx):
        second = ctx.timestamp() // 1000 * 1000
        self.per_time.put(second, (self.per_time.get(second) or 0) + 1)
        ctx.timer_service().register_event_time_timer(second + 999)

    def on_timer(self, timestamp, ctx):
        yield f"{ctx.get_current_key()} {timestamp}: {self.per_time.get(timestamp - 999)}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
orders = env.from_collection(
    [("ann", 1000), ("bob", 1500), ("cid", 2000), ("dan", 2500)], type_info=PAIR
).assign_timestamps_and_watermarks(strategy)
payments = env.from_collection(
    [("bob", 2500), ("ann", 2800), ("dan", 2500), ("eve", 9000)], type_info=PAIR
).assign_timestamps_and_watermarks(strategy)

orders.connect(payments).key_by(lambda r: r[0], lambda r: r[0], Types.STRING()).process(
    Match(), Types.STRING()
).print("match")
orders.key_by(lambda r: r[0]).connect(payments.key_by(lambda r: r[0])).process(
    Match(), Types.STRING()
).print("keyed before")
orders.union(payments, orders).key_by(lambda r: r[0], Types.STRING()).process(
    Times(), Types.STRING()
).print("united")
env.execute("co timers")
