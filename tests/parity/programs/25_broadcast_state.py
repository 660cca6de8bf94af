"""Rules in broadcast state, applied to a keyed stream with state of its own, in BATCH mode."""
from pyflink.common import Types
from pyflink.datastream import (
    KeyedBroadcastProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor

LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())
NAMES = MapStateDescriptor("names", Types.STRING(), Types.STRING())


class Limit(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.INT()))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value[1])
        limits, names = ctx.get_broadcast_state(LIMITS), ctx.get_broadcast_state(NAMES)
        key = ctx.get_current_key()
        if key not in limits:
            yield f"{key}: no limit among {sorted(limits.keys())}"
        elif self.total.value() > limits[key]:
            yield f"{names.get(key)}: {self.total.value()} is above {limits.get(key)}"

    def process_broadcast_element(self, value, ctx):
        name, key, limit = value
        limits, names = ctx.get_broadcast_state(LIMITS), ctx.get_broadcast_state(NAMES)
        if limit is None or limit < 0:
            limits.remove(key)
            del names[key]
        else:
            limits.put(key, limit)
            names[key] = name
        yield f"{len(list(limits.items()))} limits, {sorted(names.values())}, {limits.is_empty()}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(2)
payments = env.from_collection(
    [("a", 5), ("b", 9), ("a", 6), ("c", 1), ("a", 1), ("b", 2), ("d", 3)],
    type_info=Types.TUPLE([Types.STRING(), Types.INT()]),
)
rules = env.from_collection(
    [("Anna", "a", 20), ("Ben", "b", 10), ("Carl", "c", 1), ("Anna", "a", 10), ("Carl", "c", -1)],
    type_info=Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()]),
).set_parallelism(1)

payments.key_by(lambda payment: payment[0], key_type=Types.STRING()).connect(
    rules.broadcast(LIMITS, NAMES)
).process(Limit(), output_type=Types.STRING()).print()
env.execute("limits")
