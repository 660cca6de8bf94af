"""State that expires: long before the next record comes, or never in this job."""
import time

from pyflink.common import Configuration, Time, Types
from pyflink.datastream import AggregateFunction, KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


SHORT = StateTtlConfig.new_builder(Time.milliseconds(20)).build()
READ = (
    StateTtlConfig.new_builder(Time.milliseconds(20))
    .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
    .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
    .disable_cleanup_in_background()
    .build()
)
LONG = StateTtlConfig.new_builder(Time.hours(1)).cleanup_full_snapshot().build()


class All(KeyedProcessFunction):
    def __init__(self, config):
        self.config = config

    def open(self, runtime_context):
        descriptors = [
            ValueStateDescriptor("value", Types.INT()),
            ListStateDescriptor("list", Types.INT()),
            MapStateDescriptor("map", Types.INT(), Types.STRING()),
            ReducingStateDescriptor("reducing", lambda x, y: x + y, Types.INT()),
            AggregatingStateDescriptor("aggregating", Sum(), Types.INT()),
        ]
        for descriptor in descriptors:
            descriptor.enable_time_to_live(self.config)
        self.value = runtime_context.get_state(descriptors[0])
        self.list = runtime_context.get_list_state(descriptors[1])
        self.map = runtime_context.get_map_state(descriptors[2])
        self.reducing = runtime_context.get_reducing_state(descriptors[3])
        self.aggregating = runtime_context.get_aggregating_state(descriptors[4])

    def process_element(self, value, ctx):
        # Longer than the short time to live, however late the records come.
        time.sleep(0.2)
        yield (
            f"{value}: {self.value.value()}, {list(self.list.get() or [])}, "
            f"{sorted(self.map.items())}, {self.map.contains(1)}, {self.reducing.get()}, "
            f"{self.aggregating.get()}"
        )
        self.value.update(value)
        self.list.add(value)
        self.map.put(value, str(value))
        self.reducing.add(value)
        self.aggregating.add(value)


def slowly(value):
    time.sleep(0.2)
    return value


configuration = Configuration()
configuration.set_string("penstock.micro-batch.max-records", "1")
configuration.set_string("penstock.channel.max-records", "1")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3], type_info=Types.INT()).map(slowly, Types.INT())
keyed = numbers.key_by(lambda n: "all", Types.STRING())
keyed.process(All(SHORT), Types.STRING()).print("short")
keyed.process(All(READ), Types.STRING()).print("short, read")
keyed.process(All(LONG), Types.STRING()).print("long")
env.execute("ttl")
