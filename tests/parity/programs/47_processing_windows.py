"""Windows of processing time: those that are over fire; the end of the input fires none."""
import time

from pyflink.common import Configuration, Time, Types
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import (
    ProcessingTimeSessionWindows,
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
)


class Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        now = context.current_processing_time()
        yield f"{key}: {list(elements)}, {window.end - window.start} long, over {now >= window.end - 1}"


def slowly(value):
    # Each record in a session of its own.
    time.sleep(0.5)
    return value


configuration = Configuration()
configuration.set_string("penstock.micro-batch.max-records", "1")
configuration.set_string("penstock.channel.max-records", "1")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4], type_info=Types.INT()).map(slowly, Types.INT())
keyed = numbers.filter(lambda n: n != 4).key_by(lambda n: "k", Types.STRING())
keyed.window(ProcessingTimeSessionWindows.with_gap(Time.milliseconds(20))).process(
    Show(), Types.STRING()
).print("sessions")
keyed.window(TumblingProcessingTimeWindows.of(Time.days(30))).process(
    Show(), Types.STRING()
).print("tumbling")
keyed.window(SlidingProcessingTimeWindows.of(Time.days(30), Time.days(10))).process(
    Show(), Types.STRING()
).print("sliding")
env.execute("processing windows")
