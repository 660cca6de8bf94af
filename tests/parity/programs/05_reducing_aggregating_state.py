"""ReducingState and AggregatingState: empty get, add, clear; a lambda and classes."""
from pyflink.common import Types
from pyflink.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import AggregatingStateDescriptor, ReducingStateDescriptor


class Longest(ReduceFunction):
    def reduce(self, value1, value2):
        return value2 if len(value2) > len(value1) else value1


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Stats(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
        )
        self.longest = runtime_context.get_reducing_state(
            ReducingStateDescriptor("longest", Longest(), Types.STRING())
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value, ctx):
        key, number = value
        if number is None:
            self.total.clear()
            self.longest.clear()
            self.mean.clear()
        else:
            self.total.add(number)
            self.longest.add(str(number))
            self.mean.add(number)
        yield (key, self.total.get(), self.longest.get(), self.mean.get())


DATA = [("a", 1), ("b", 40), ("a", 20), ("a", 33), ("b", None), ("a", None), ("a", 5), ("b", 6)]
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(DATA).key_by(lambda t: t[0]).process(Stats()).print()
env.execute("reducing and aggregating state")
