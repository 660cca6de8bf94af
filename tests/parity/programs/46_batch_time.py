"""BATCH: a key at a time, its timers in order, its windows complete; processing time does not run."""
from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ListStateDescriptor
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)


class Third(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Alarm(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.INT()))

    def process_element(self, value, ctx):
        self.seen.add(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)
        ctx.timer_service().register_event_time_timer(10_000)
        yield f"{value} meets {ctx.timer_service().current_watermark()}"

    def on_timer(self, timestamp, ctx):
        yield (
            f"{ctx.get_current_key()} at {timestamp}, watermark "
            f"{ctx.timer_service().current_watermark()}, has {sorted(self.seen.get())}"
        )


class Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield f"{key} [{window.start}, {window.end}): {sorted(value[1] for value in elements)}"


class ShowWithoutTimes(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield f"{key}: {sorted(value[1] for value in elements)}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
RECORD = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
LATE = OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()]))
records = env.from_collection(
    [("a", 1, 100), ("b", 2, 3000), ("a", 3, 2500), ("a", 4, 50), ("b", 5, 10), ("a", 6, 2400)],
    type_info=RECORD,
).assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Third())
)
keyed = records.key_by(lambda r: r[0], Types.STRING())
keyed.process(Alarm(), Types.STRING()).print("timers")
tumbling = (
    keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
    .side_output_late_data(LATE)
    .process(Show(), Types.STRING())
)
tumbling.print("tumbling")
tumbling.get_side_output(LATE).print("late")
keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(60))).process(
    Show(), Types.STRING()
).print("sessions")
keyed.count_window(2).process(ShowWithoutTimes(), Types.STRING()).print("count")
keyed.window(TumblingProcessingTimeWindows.of(Time.days(30))).process(
    ShowWithoutTimes(), Types.STRING()
).print("processing time")
env.execute("batch time")
