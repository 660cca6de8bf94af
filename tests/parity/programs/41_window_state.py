"""State of a window, state of its key, and what is cleared when."""
import os
import time

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import TumblingEventTimeWindows

PAUSE = float(os.environ["PARITY_PAUSE"])


class Third(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Firings(ProcessWindowFunction):
    """Counts firings: of each window, of each key, of each key by the runtime context."""

    OF_WINDOW = ValueStateDescriptor("of window", Types.INT())
    OF_KEY = ListStateDescriptor("of key", Types.LONG())

    def open(self, runtime_context):
        self.own = runtime_context.get_state(ValueStateDescriptor("own", Types.INT()))

    def process(self, key, context, elements):
        of_window = context.window_state().get_state(self.OF_WINDOW)
        of_key = context.global_state().get_list_state(self.OF_KEY)
        of_window.update((of_window.value() or 0) + 1)
        of_key.add(context.window().start)
        self.own.update((self.own.value() or 0) + 1)
        yield (
            f"{key} [{context.window().start}, {context.window().end}) "
            f"{[value[1] for value in elements]}: {of_window.value()}. firing, "
            f"of the key {list(of_key.get())}, {self.own.value()}, "
            f"watermark {context.current_watermark()}, {context.current_processing_time() > 10**12}"
        )

    def clear(self, context):
        context.window_state().get_state(self.OF_WINDOW).clear()


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
            ("a", 1, 100),
            ("b", 2, 500),
            ("a", 3, 1100),
            ("a", 4, 200),
            ("b", 5, 1500),
            ("a", 6, 300),
            ("b", 7, 2600),
            ("a", 8, 2900),
            ("a", 9, 1900),
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
keyed.window(TumblingEventTimeWindows.of(Time.seconds(1))).allowed_lateness(1500).process(
    Firings(), Types.STRING()
).print("firings")
env.execute("window state")
