"""What every kind of strategy gives: times of records, and the watermark each of them meets."""
import os
import time

from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessFunction, StreamExecutionEnvironment

PAUSE = float(os.environ["PARITY_PAUSE"])


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Shift(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return record_timestamp + 1_000_000


class Show(ProcessFunction):
    def process_element(self, value, ctx):
        yield f"{value[0]} at {ctx.timestamp()}, watermark {ctx.timer_service().current_watermark()}"


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
RECORDS = [("a", 1000), ("b", 3000), ("c", 2000), ("d", 8000), ("e", 7500), ("f", -20)]

monotonous = WatermarkStrategy.for_monotonous_timestamps()
bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
strategies = {
    "monotonous": monotonous.with_timestamp_assigner(Second()),
    "bounded": bounded.with_timestamp_assigner(Second()),
    "idle": monotonous.with_idleness(Duration.of_minutes(1)).with_timestamp_assigner(Second()),
    "none": WatermarkStrategy.no_watermarks().with_timestamp_assigner(Second()),
}
for name, strategy in strategies.items():
    slow = slowly(env.from_collection(RECORDS, type_info=PAIR))
    slow.assign_timestamps_and_watermarks(strategy).process(
        Show(), output_type=Types.STRING()
    ).print(name)
slow = slowly(env.from_collection(RECORDS, type_info=PAIR))
slow.assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
).assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Shift())
).process(Show(), output_type=Types.STRING()).print("twice")
env.execute("strategies")
