"""The rolling aggregates in BATCH: one result for each key; keyed state in BATCH."""
from pyflink.common import Types
from pyflink.datastream import (
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor

DATA = [
    ("a", 5, "a1"), ("b", 2, "b1"), ("a", 3, "a2"), ("a", 3, "a3"), ("b", 7, "b2"),
    ("a", 9, "a4"), ("b", 7, "b3"), ("a", 9, "a5"), ("b", 2, "b4"), ("c", 0, "c1"),
]


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value[0], n


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(1)
keyed = env.from_collection(
    DATA, type_info=Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()])
).key_by(lambda t: t[0], key_type=Types.STRING())
keyed.sum(1).print("sum")
keyed.min(1).print("min")
keyed.max(1).print("max")
keyed.min_by(1).print("min_by")
keyed.max_by(1).print("max_by")
keyed.reduce(lambda a, b: (a[0], a[1] * 2 + b[1], a[2] + b[2])).print("reduce")
keyed.process(Count()).print("count")
env.execute("rolling, batch")
