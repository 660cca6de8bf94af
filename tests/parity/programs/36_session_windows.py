"""Sessions: they grow and merge, whatever order records come in."""
from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)


class Third(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element[1] * 100


class Collect(AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return [*accumulator, value[1]]

    def get_result(self, accumulator):
        return str(sorted(accumulator))

    def merge(self, a, b):
        return a + b


class Span(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield f"{key} [{window.start}, {window.end}): {sorted(elements)}"


class Only(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield f"{key} {context.window()}: {list(elements)}"


class Length(WindowFunction):
    def apply(self, key, window, inputs):
        yield key, window.end - window.start, len(list(inputs))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
RECORD = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
records = (
    env.from_collection(
        [
            ("a", 1, 0),
            ("a", 2, 900),
            ("b", 3, 100),
            ("a", 4, 450),  # between two sessions: they become one
            ("a", 5, 3000),
            ("b", 6, 600),  # the gap's end is no longer inside
            ("b", 7, 1101),
            ("a", 8, 2000),
            ("a", 9, 2500),
            ("b", 1, 5000),
            ("b", 3, 5090),
        ],
        type_info=RECORD,
    )
    .assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Third())
    )
)
keyed = records.key_by(lambda r: r[0], Types.STRING())
# Where three sessions become one, PyFlink loses what one of them had reduced or aggregated.
two_at_most = records.filter(lambda r: r[1] not in (4, 9)).key_by(lambda r: r[0], Types.STRING())
sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(500)))
sessions.process(Span(), Types.STRING()).print("process")
sessions.apply(Length(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])).print("apply")
pairs = two_at_most.window(EventTimeSessionWindows.with_gap(Time.milliseconds(500)))
pairs.reduce(
    lambda x, y: (x[0], x[1] + y[1], min(x[2], y[2])), output_type=RECORD
).print("reduce")
pairs.aggregate(Collect(), output_type=Types.STRING()).print("aggregate")
pairs.aggregate(Collect(), window_function=Only(), output_type=Types.STRING()).print(
    "aggregate process"
)
keyed.window(EventTimeSessionWindows.with_dynamic_gap(Gap())).process(
    Span(), Types.STRING()
).print("dynamic")
env.execute("sessions")
