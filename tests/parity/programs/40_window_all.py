"""Windows over a whole stream, without a key."""
from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import AggregateFunction, StreamExecutionEnvironment
from pyflink.datastream.functions import AllWindowFunction, ProcessAllWindowFunction
from pyflink.datastream.window import (
    CountTumblingWindowAssigner,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)


class Itself(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value * 100


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Show(AllWindowFunction):
    def apply(self, window, inputs):
        yield f"{window.max_timestamp()}: {sorted(inputs)}"


class ShowWithContext(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield f"{context.window()}: {sorted(elements)}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 12, 3, 25, 14, 9, 10], type_info=Types.INT())
timed = numbers.assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
)
seconds = TumblingEventTimeWindows.of(Time.seconds(1))
timed.window_all(seconds).reduce(lambda x, y: x + y, output_type=Types.INT()).print("reduce")
timed.window_all(seconds).reduce(
    lambda x, y: x + y, window_function=ShowWithContext(), output_type=Types.STRING()
).print("reduce process")
timed.window_all(seconds).aggregate(Mean(), output_type=Types.DOUBLE()).print("aggregate")
timed.window_all(seconds).aggregate(
    Mean(), window_function=ShowWithContext(), output_type=Types.STRING()
).print("aggregate process")
timed.window_all(SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1))).apply(
    Show(), Types.STRING()
).print("sliding")
timed.window_all(EventTimeSessionWindows.with_gap(Time.milliseconds(300))).process(
    ShowWithContext(), Types.STRING()
).print("sessions")
numbers.window_all(CountTumblingWindowAssigner.of(3)).process(
    ShowWithContext(), Types.STRING()
).print("count")
numbers.window_all(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(2))).apply(
    Show(), Types.STRING()
).print("global")
env.execute("window all")
