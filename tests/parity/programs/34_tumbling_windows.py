"""Tumbling windows: reduce, aggregate, apply and process, with an offset and behind a key."""
from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from pyflink.datastream.window import TumblingEventTimeWindows


class Third(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Add(ReduceFunction):
    def reduce(self, left, right):
        return left[0], left[1] + right[1], max(left[2], right[2])


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Sorted(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, window.start, window.end, str(sorted(value[1] for value in inputs)))]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield f"{key} [{window.start}, {window.end}) {window.max_timestamp()}: {list(elements)}"

    def clear(self, context):
        pass


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
RECORD = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
records = env.from_collection(
    [
        ("a", 1, 0),
        ("b", 2, 999),
        ("a", 3, 1000),
        ("a", 4, 4999),
        ("b", 5, 5000),
        ("a", 6, 1),
        ("b", 7, -1),
        ("b", 8, 12_345),
        ("a", 9, 5001),
    ],
    type_info=RECORD,
).assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Third())
)
keyed = records.key_by(lambda r: r[0], Types.STRING())
seconds = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
fives = keyed.window(TumblingEventTimeWindows.of(Time.seconds(5), Time.seconds(2)))

seconds.reduce(Add(), output_type=RECORD).print("reduce")
seconds.reduce(lambda x, y: x, output_type=RECORD).print("first")
fives.reduce(Add(), window_function=Describe(), output_type=Types.STRING()).print("reduce process")
fives.reduce(
    Add(),
    window_function=Sorted(),
    output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.STRING()]),
).print("reduce apply")
fives.aggregate(Mean(), output_type=Types.DOUBLE()).print("aggregate")
fives.aggregate(
    Mean(),
    window_function=Describe(),
    accumulator_type=Types.TUPLE([Types.INT(), Types.INT()]),
    output_type=Types.STRING(),
).print("aggregate process")
fives.apply(
    Sorted(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.STRING()])
).print("apply")
fives.process(Describe(), Types.STRING()).print("process")
env.execute("tumbling")
