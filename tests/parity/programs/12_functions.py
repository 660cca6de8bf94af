"""map, flat_map, filter and process: callables and classes, and all they may return."""
from pyflink.common import Types
from pyflink.datastream import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)


class Scale(MapFunction):
    def open(self, runtime_context):
        self.factor = 10

    def map(self, value):
        return value * self.factor


class Repeat(FlatMapFunction):
    def open(self, runtime_context):
        self.letters = "xyz"

    def flat_map(self, value):
        for i in range(value % 3):
            yield self.letters[i] * value


class Odd(FilterFunction):
    def open(self, runtime_context):
        self.rest = 1

    def filter(self, value):
        return value % 2 == self.rest


class Pick(ProcessFunction):
    """Returns None, a list, a tuple, a generator or an empty list."""

    def process_element(self, value, ctx):
        choices = [None, [value], (value, -value), (value + i for i in range(3)), []]
        return choices[value % 5]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection(list(range(1, 10)), type_info=Types.INT())
numbers.map(Scale(), output_type=Types.INT()).print("map")
numbers.flat_map(Repeat(), output_type=Types.STRING()).print("flat_map")
numbers.filter(Odd()).print("filter")
numbers.process(Pick(), output_type=Types.INT()).print("process")
numbers.flat_map(lambda n: [n] * (n % 3)).print("list")
numbers.flat_map(lambda n: "ab" if n == 4 else ()).print("text and tuple")
numbers.filter(lambda n: n & 4).print("truthy")
numbers.filter(lambda n: None if n > 2 else "yes").map(lambda n: None).print("none")
env.execute("functions")
