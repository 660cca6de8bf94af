"""Side outputs of every kind of process function, used once, twice, or not at all."""
from pyflink.common import Row, Types
from pyflink.datastream import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor

ODD = OutputTag("odd", Types.INT())
TEXT = OutputTag("text", Types.STRING())
ROWS = OutputTag("rows", Types.ROW([Types.STRING(), Types.INT()]))
ANY = OutputTag("any")


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield ODD, value
        else:
            yield value
        yield TEXT, f"text of {value}"
        if value == 4:
            yield ANY, {"four": [1, 2]}
            yield ROWS, Row("four", 4)


class Again(ProcessFunction):
    def process_element(self, value, ctx):
        yield TEXT, f"again {value}"
        yield value


class SplitByKey(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield TEXT, f"{ctx.get_current_key()}: {self.count.value()}"
        if self.count.value() == 2:
            yield value * 10


class SplitTwo(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value
        yield TEXT, f"left {value}"

    def process_element2(self, value, ctx):
        return [(TEXT, f"right {value}"), (ODD, len(value))]


class SplitTwoByKey(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element1(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        if self.count.value() == 2:
            yield TEXT, f"both of {ctx.get_current_key()}"

    def process_element2(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        if self.count.value() == 2:
            yield TEXT, f"both of {ctx.get_current_key()}"
        yield len(value)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4, 5], type_info=Types.INT())
words = env.from_collection(["a", "bb", "ccc"], type_info=Types.STRING())

main = numbers.process(Split(), output_type=Types.INT())
main.print("main")
odd = main.get_side_output(ODD)
odd.print("odd")
odd.map(lambda n: n * 100, output_type=Types.INT()).print("hundreds")
main.get_side_output(ODD).key_by(lambda n: n % 2).sum().print("sum")
main.get_side_output(TEXT).print("text")
main.get_side_output(ROWS).print("rows")
main.get_side_output(ANY).print("any")
again = odd.process(Again(), output_type=Types.INT())
again.print("again main")
again.get_side_output(TEXT).print("again")

keyed = numbers.key_by(lambda n: n % 2, Types.INT()).process(SplitByKey(), Types.INT())
keyed.print("keyed")
keyed.get_side_output(TEXT).print("keyed text")

two = numbers.connect(words).process(SplitTwo(), Types.INT())
two.print("two")
two.get_side_output(TEXT).union(keyed.get_side_output(TEXT)).print("two text")
two.get_side_output(ODD).print("two lengths")

both = numbers.connect(words).key_by(lambda n: n, lambda w: len(w), Types.INT()).process(
    SplitTwoByKey(), Types.INT()
)
both.print("by key")
both.get_side_output(TEXT).print("by key text")
env.execute("side outputs")
