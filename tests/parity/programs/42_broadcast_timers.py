"""Keyed state, timers and side outputs beside a broadcast state."""
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    KeyedBroadcastProcessFunction,
    OutputTag,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor

LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())
OVER = OutputTag("over", Types.STRING())


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Limit(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.spent = runtime_context.get_state(ValueStateDescriptor("spent", Types.INT()))

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(LIMITS).put(value[0], value[1])

    def process_element(self, value, ctx):
        self.spent.update((self.spent.value() or 0) + value[2])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // 1000 * 1000 + 999)
        limit = ctx.get_broadcast_state(LIMITS).get(value[0])
        if limit is not None and self.spent.value() > limit:
            yield OVER, f"{ctx.get_current_key()} spent {self.spent.value()} of {limit}"

    def on_timer(self, timestamp, ctx):
        limit = ctx.get_broadcast_state(LIMITS).get(ctx.get_current_key())
        yield f"{ctx.get_current_key()} at {timestamp}, {ctx.time_domain().name}: limit {limit}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
# All rules come first in this mode only.
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
rules = env.from_collection(
    [("ann", 10), ("bob", 5), ("ann", 8)], type_info=Types.TUPLE([Types.STRING(), Types.INT()])
).assign_timestamps_and_watermarks(strategy)
payments = env.from_collection(
    [("ann", 100, 4), ("bob", 1200, 5), ("ann", 1300, 5), ("cid", 700, 90), ("bob", 900, 1)],
    type_info=Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()]),
).assign_timestamps_and_watermarks(strategy)
limited = (
    payments.key_by(lambda p: p[0], Types.STRING())
    .connect(rules.broadcast(LIMITS))
    .process(Limit(), Types.STRING())
)
limited.print("timers")
limited.get_side_output(OVER).print("over")
env.execute("broadcast timers")
