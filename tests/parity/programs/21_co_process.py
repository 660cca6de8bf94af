"""process over two streams without keys: what may be returned, the time of a record."""
from pyflink.common import Types
from pyflink.datastream import (
    CoFlatMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    StreamExecutionEnvironment,
)


class Times(CoProcessFunction):
    def open(self, runtime_context):
        self.places = ["first", "second"]

    def process_element1(self, value, ctx):
        yield (self.places[0], value, ctx.timestamp())
        if value > 1:
            yield (self.places[0], -value, 0)

    def process_element2(self, value, ctx):
        return None if value == "x" else [(self.places[1], len(value), ctx.timestamp())]


class AlsoWithoutKeys(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        return [value, value]

    def process_element2(self, value, ctx):
        return ()


class Letters(CoFlatMapFunction):
    def flat_map1(self, value):
        for i in range(value):
            yield f"{value}.{i}"

    def flat_map2(self, value):
        return list(value) if value else None


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_collection([1, 2, 3], type_info=Types.INT())
words = env.from_collection(["x", "yy", "", "zzz"], type_info=Types.STRING())

numbers.connect(words).process(
    Times(), output_type=Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
).print("times")
numbers.connect(words).process(AlsoWithoutKeys(), output_type=Types.INT()).print("twice")
numbers.connect(words).flat_map(Letters(), output_type=Types.STRING()).print("letters")
numbers.rebalance().connect(words.shuffle()).flat_map(Letters()).print("dealt out")
env.execute("co process")
