"""Late records: dropped, put aside, or let in for a while with a firing each."""
import os
import time

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    PurgingTrigger,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

PAUSE = float(os.environ["PARITY_PAUSE"])


class Third(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield f"{key} [{window.start}, {window.end}): {[value[1] for value in elements]}"


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
RECORD = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
# A tag each: PyFlink cannot ship one again that a stream was taken by.
LATE, TOO_LATE, LATE_FOR_BOTH, LATE_FOR_SESSION = (
    OutputTag(f"late {i}", Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()]))
    for i in range(4)
)
records = slowly(
    env.from_collection(
        [
            ("a", 1, 100),
            ("b", 2, 900),
            ("a", 3, 1000),  # the watermark is 999: the first second is over
            ("a", 4, 200),  # late, but not by more than a second
            ("a", 5, 1200),
            ("b", 6, 2100),  # 2099: the first second is gone for good
            ("a", 7, 300),
            ("b", 8, 1999),
            ("a", 9, 3500),
            ("c", 10, 1500),
            ("a", 11, 3400),
        ],
        type_info=RECORD,
    )
)
keyed = (
    records.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Third())
    )
    .key_by(lambda r: r[0], Types.STRING())
)
add = lambda x, y: (x[0], x[1] + y[1], max(x[2], y[2]))
seconds = TumblingEventTimeWindows.of(Time.seconds(1))
keyed.window(seconds).reduce(add, output_type=RECORD).print("dropped")
aside = keyed.window(seconds).side_output_late_data(LATE).process(Show(), Types.STRING())
aside.print("in time")
aside.get_side_output(LATE).print("aside")
allowed = (
    keyed.window(seconds)
    .allowed_lateness(1000)
    .side_output_late_data(TOO_LATE)
    .process(Show(), Types.STRING())
)
allowed.print("allowed")
allowed.get_side_output(TOO_LATE).print("too late")
keyed.window(seconds).allowed_lateness(1000).trigger(
    PurgingTrigger.of(EventTimeTrigger.create())
).reduce(add, output_type=RECORD).print("allowed, purged")
sliding = (
    keyed.window(SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1)))
    .side_output_late_data(LATE_FOR_BOTH)
    .process(Show(), Types.STRING())
)
sliding.print("sliding")
sliding.get_side_output(LATE_FOR_BOTH).print("late for both")
sessions = (
    keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(400)))
    .allowed_lateness(300)
    .side_output_late_data(LATE_FOR_SESSION)
    .process(Show(), Types.STRING())
)
sessions.print("sessions")
sessions.get_side_output(LATE_FOR_SESSION).print("late for a session")
env.execute("lateness")
