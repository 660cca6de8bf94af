"""Sliding windows: each record in several, some of them before zero."""
from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows


class Third(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


class Span(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield f"{key} {context.window()}: {list(elements)}"


def windows(mode):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.set_runtime_mode(mode)
    record = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
    keyed = (
        env.from_collection(
            [("a", 1, 500), ("b", 2, 1500), ("a", 3, 3000), ("a", 4, 100), ("b", 5, 7999)],
            type_info=record,
        )
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Third())
        )
        .key_by(lambda r: r[0], Types.STRING())
    )
    sliding = keyed.window(SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1)))
    sliding.aggregate(Count(), output_type=Types.INT()).print(f"{mode.name} count")
    sliding.aggregate(Count(), window_function=Span(), output_type=Types.STRING()).print(
        f"{mode.name} count in"
    )
    keyed.window(
        SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(2), Time.milliseconds(-300))
    ).process(Span(), Types.STRING()).print(f"{mode.name} offset")
    keyed.window(SlidingEventTimeWindows.of(Time.seconds(1), Time.seconds(3))).process(
        Span(), Types.STRING()
    ).print(f"{mode.name} gaps")
    # What a window gives has the window's last time.
    sliding.reduce(lambda x, y: (x[0], x[1] + y[1], x[2]), output_type=record).key_by(
        lambda r: r[0], Types.STRING()
    ).window(TumblingEventTimeWindows.of(Time.seconds(2))).process(Span(), Types.STRING()).print(
        f"{mode.name} windows of windows"
    )
    env.execute("sliding")


windows(RuntimeExecutionMode.STREAMING)
windows(RuntimeExecutionMode.BATCH)
