"""Triggers of a window: at counts, at intervals of event time, purging, and one of one's own."""
import os
import time

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)

PAUSE = float(os.environ["PARITY_PAUSE"])


class Third(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield (
            f"{key} [{window.start}, {window.end}) at {context.current_watermark()}: "
            f"{[value[1] for value in elements]}"
        )


class AtLargeOnes(Trigger):
    """Fires at a value above ten, half way through the window, and at its end, which also purges."""

    SEEN = ValueStateDescriptor("large ones", Types.INT())

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer((window.start + window.end) // 2)
        ctx.register_event_time_timer(window.max_timestamp())
        if element[1] <= 10:
            return TriggerResult.CONTINUE
        seen = ctx.get_partitioned_state(self.SEEN)
        seen.update((seen.value() or 0) + 1)
        return TriggerResult.FIRE if seen.value() < 2 else TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        if time == window.max_timestamp():
            return TriggerResult.FIRE_AND_PURGE
        return TriggerResult.FIRE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.SEEN).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


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
records = slowly(
    env.from_collection(
        [
            ("a", 1, 0),
            ("a", 12, 100),
            ("b", 3, 2100),
            ("a", 4, 2200),
            ("a", 15, 2300),
            ("b", 6, 4000),
            ("a", 7, 5100),
            ("b", 8, 7600),
            ("a", 19, 9999),
            ("a", 20, 9999),
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
fives = TumblingEventTimeWindows.of(Time.seconds(5))
keyed.window(fives).process(Show(), Types.STRING()).print("event time")
keyed.window(fives).trigger(EventTimeTrigger.create()).process(Show(), Types.STRING()).print("same")
keyed.window(fives).trigger(CountTrigger.of(2)).process(Show(), Types.STRING()).print("count")
keyed.window(fives).trigger(PurgingTrigger.of(CountTrigger.of(2))).process(
    Show(), Types.STRING()
).print("purging")
keyed.window(fives).trigger(ContinuousEventTimeTrigger.of(Time.seconds(2))).process(
    Show(), Types.STRING()
).print("continuous")
keyed.window(fives).trigger(AtLargeOnes()).process(Show(), Types.STRING()).print("own")
env.execute("triggers")
