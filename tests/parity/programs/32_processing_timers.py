"""Processing-time timers: soon, and far away at the end of the input."""
import time

from pyflink.common import Configuration, Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor


class Soon(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        timers = ctx.timer_service()
        if self.due.value() is None:
            self.due.update(timers.current_processing_time() + 1)
            timers.register_processing_time_timer(self.due.value())
            timers.register_processing_time_timer(self.due.value())
        # Nobody waits for these.
        timers.register_processing_time_timer(timers.current_processing_time() + 3_600_000)
        far = timers.current_processing_time() + 7_200_000
        timers.register_processing_time_timer(far)
        timers.delete_processing_time_timer(far)

    def on_timer(self, timestamp, ctx):
        now = ctx.timer_service().current_processing_time()
        yield (
            f"{ctx.get_current_key()} {ctx.time_domain().name} as set {timestamp == self.due.value()}, "
            f"{ctx.timestamp() == timestamp}, due {timestamp <= now}"
        )


def slowly(value):
    # Time for a timer to fire before the input ends.
    time.sleep(0.4)
    return value


configuration = Configuration()
configuration.set_string("penstock.micro-batch.max-records", "1")
configuration.set_string("penstock.channel.max-records", "1")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 3], type_info=Types.INT()).map(slowly, Types.INT())
numbers.key_by(lambda n: n % 2, Types.INT()).process(Soon(), Types.STRING()).print("soon")
env.execute("processing timers")
