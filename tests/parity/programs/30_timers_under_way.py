"""Timers that fire while records still come: as soon as a watermark has passed them."""
import os
import time

from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor

PAUSE = float(os.environ["PARITY_PAUSE"])


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Idle(KeyedProcessFunction):
    """Tells when a key has been quiet for a second, and what it met on the way."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value, ctx):
        if self.last.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.last.value() + 1000)
        self.last.update(max(value[1], self.last.value() or 0))
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(self.last.value() + 1000)
        yield f"{value} meets {ctx.timer_service().current_watermark()}"

    def on_timer(self, timestamp, ctx):
        yield (
            f"{ctx.get_current_key()} quiet at {timestamp} behind {self.count.value()}, "
            f"watermark {ctx.timer_service().current_watermark()}"
        )
        self.last.clear()
        self.count.clear()


class Past(KeyedProcessFunction):
    """A timer for a time that is gone fires with the next watermark."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp, ctx):
        yield f"{ctx.get_current_key()} at {ctx.timestamp()} by {ctx.timer_service().current_watermark()}"


def slowly(stream):
    """Let a watermark come behind each record: by the clock, or behind its micro-batch."""

    def wait(value):
        time.sleep(PAUSE)
        return value

    slow = stream.map(wait, output_type=stream.get_type())
    return slow.disable_chaining() if PAUSE else slow


configuration = Configuration()
configuration.set_string("pipeline.auto-watermark-interval", "20 ms")
configuration.set_string("execution.buffer-timeout.interval", "0 ms")
configuration.set_string("penstock.micro-batch.max-records", "1")
configuration.set_string("penstock.channel.max-records", "1")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RECORDS = [
    ("ann", 1000),
    ("bob", 1500),
    ("ann", 1900),
    ("bob", 2600),
    ("cid", 4000),
    ("ann", 3500),
    ("bob", 9000),
]
slow = slowly(env.from_collection(RECORDS, type_info=PAIR))
monotonous = slow.assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
)
monotonous.key_by(lambda r: r[0], Types.STRING()).process(Idle(), Types.STRING()).print("quiet")
monotonous.key_by(lambda r: r[0], Types.STRING()).process(Past(), Types.STRING()).print("past")
slow = slowly(env.from_collection(RECORDS, type_info=PAIR))
slow.assign_timestamps_and_watermarks(
    WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(700)).with_timestamp_assigner(
        Second()
    )
).key_by(lambda r: r[0], Types.STRING()).process(Idle(), Types.STRING()).print("bounded")
env.execute("timers under way")
