"""Word count; then map, flat_map and filter on the keyed stream, each with state of its own."""
from pyflink.common import Types
from pyflink.datastream import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor

LINES = ["to be or not to be", "that is the question", "", "whether tis nobler in the mind to be"]


class Counting:
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def count(self):
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        return seen


class Number(Counting, MapFunction):
    def map(self, value):
        return value[0], self.count()


class Echo(Counting, FlatMapFunction):
    def flat_map(self, value):
        for i in range(self.count() - 1):
            yield "%s %d" % (value[0], i)


class First(Counting, FilterFunction):
    def filter(self, value):
        return self.count() == 1


def split(line):
    for word in line.split():
        yield word


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
words = (
    env.from_collection(LINES, type_info=Types.STRING())
    .flat_map(split, output_type=Types.STRING())
    .map(lambda w: (w, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda t: t[0], key_type=Types.STRING())
)
words.reduce(lambda a, b: (a[0], a[1] + b[1])).print()
words.map(Number()).print("number")
words.flat_map(Echo(), output_type=Types.STRING()).print("echo")
words.filter(First()).print("first")
env.execute("word count")
