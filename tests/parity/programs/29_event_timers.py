"""Event-time timers at the end of the input: once each, in order, deleted ones never."""
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Alarm(KeyedProcessFunction):
    """Sets timers several times over, deletes some, and writes down what fires."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.fired = runtime_context.get_state(ValueStateDescriptor("fired", Types.INT()))

    def process_element(self, value, ctx):
        self.seen.add(value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer(value[1] + 100)
        timers.register_event_time_timer(value[1] + 100)
        timers.register_event_time_timer(5000)
        timers.register_event_time_timer(value[1] + 200)
        timers.delete_event_time_timer(value[1] + 200)
        timers.delete_event_time_timer(123456)

    def on_timer(self, timestamp, ctx):
        number = (self.fired.value() or 0) + 1
        self.fired.update(number)
        yield (
            f"{ctx.get_current_key()}: {number}. fires at {timestamp}, time {ctx.timestamp()}, "
            f"{ctx.time_domain().name}, {sorted(self.seen.get())}, "
            f"watermark behind {ctx.timer_service().current_watermark() >= timestamp}"
        )
        if timestamp == 5000:
            ctx.timer_service().register_event_time_timer(4000)
            ctx.timer_service().register_event_time_timer(9000)
            ctx.timer_service().delete_event_time_timer(9000)
            self.seen.clear()


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
records = env.from_collection(
    [("ann", 1000), ("bob", 4900), ("ann", 4900), ("ann", 300), ("cid", 7000)], type_info=PAIR
)
timed = records.assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
)
timed.key_by(lambda r: r[0], Types.STRING()).process(Alarm(), Types.STRING()).print("typed")
timed.key_by(lambda r: r[0]).process(Alarm()).print("untyped")
timed.map(lambda r: (r[0], r[1] * 10), PAIR).filter(lambda r: r[0] != "cid").key_by(
    lambda r: len(r[0])
).process(Alarm(), Types.STRING()).print("behind steps")
env.execute("event timers")
