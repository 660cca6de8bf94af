"""ValueState: empty at first, updated, cleared; process_element as generator, list and None."""
from pyflink.common import Types
from pyflink.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor


class Running(KeyedProcessFunction):
    """Yields (key, previous, now); a value of 0 clears the state."""

    def open(self, runtime_context: RuntimeContext):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        before = self.total.value()
        if value[1] == 0:
            self.total.clear()
        else:
            self.total.update((before or 0) + value[1])
        yield ctx.get_current_key(), before, self.total.value()


class EveryThird(KeyedProcessFunction):
    """Returns None twice, then a list of two results."""

    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_state(
            ValueStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value, ctx):
        seen = (self.seen.value() or []) + [value[1]]
        if len(seen) < 3:
            self.seen.update(seen)
            return None
        self.seen.clear()
        return [(value[0], "sum", sum(seen)), (value[0], "all", tuple(seen))]


DATA = [("a", 1), ("b", 10), ("a", 2), ("a", 0), ("b", 5), ("a", 7), ("c", 0), ("b", 1), ("c", 4)]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
keyed = env.from_collection(DATA).key_by(lambda t: t[0])
keyed.process(Running()).print("running")
keyed.process(EveryThird()).print("third")
env.execute("value state")
