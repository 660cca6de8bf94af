"""flat_map and map over two keyed streams: a key's state is one for both."""
from pyflink.common import Types
from pyflink.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    KeySelector,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor


class First(KeySelector):
    def get_key(self, value):
        return value[0]


class Match(CoFlatMapFunction):
    """One record of each stream makes a pair; what comes first waits in the state."""

    def open(self, runtime_context):
        self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.INT()))
        self.right = runtime_context.get_state(ValueStateDescriptor("right", Types.STRING()))

    def flat_map1(self, value):
        self.left.update(value[1])
        return self.pair(value[0])

    def flat_map2(self, value):
        self.right.update(value[1])
        yield from self.pair(value[0])

    def pair(self, key):
        left, right = self.left.value(), self.right.value()
        if left is None or right is None:
            return []
        self.left.clear()
        self.right.clear()
        return [(key, left, right)]


class Fifth(CoMapFunction):
    """Tells the sum of all when there were five of a key, of both streams together."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.INT()))

    def map1(self, value):
        return self.add(value, value)

    def map2(self, value):
        return self.add(value % 10, value // 10)

    def add(self, key, amount):
        self.seen.update((self.seen.value() or 0) + 1)
        self.sum.update((self.sum.value() or 0) + amount)
        return f"{key}: {self.sum.value()}" if self.seen.value() == 5 else None


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
pair = Types.TUPLE([Types.STRING(), Types.INT()])
texts = Types.TUPLE([Types.STRING(), Types.STRING()])
ages = env.from_collection([("ann", 41), ("bob", 7), ("cid", 19)], type_info=pair)
towns = env.from_collection([("bob", "Bonn"), ("dan", "Delft"), ("ann", "Ahlen")], type_info=texts)
out = Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING()])

ages.connect(towns).key_by(First(), lambda v: v[0], Types.STRING()).flat_map(
    Match(), output_type=out
).print("keyed behind")
ages.key_by(lambda v: v[0]).connect(towns.key_by(First())).flat_map(
    Match(), output_type=out
).print("keyed before")
ages.key_by(lambda v: v[1]).connect(towns).key_by(First(), First(), Types.STRING()).flat_map(
    Match(), output_type=out
).print("keyed twice")

small = env.from_collection([1, 2, 1, 2, 1, 3], type_info=Types.INT())
large = env.from_collection([11, 22, 31, 42, 52, 63], type_info=Types.INT())
small.connect(large).key_by(lambda n: n, lambda n: n % 10, Types.INT()).map(
    Fifth(), output_type=Types.STRING()
).print("fifth")
env.execute("co flat map")
