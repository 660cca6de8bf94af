"""Keys of many kinds: None, int, str, tuple, list; undeclared and declared; a KeySelector."""
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, KeySelector, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield repr(ctx.get_current_key()), n


class ByLength(KeySelector):
    def get_key(self, value):
        return len(value)


MIXED = [None, 1, "1", (1, "a"), [1, 2], None, 2, "1", (1, "a"), [1, 2], 1, [2, 1], (1, "b"), ""]
WORDS = ["pear", "fig", "plum", "kiwi", "date", "nut"]
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
mixed = env.from_collection([(key, i) for i, key in enumerate(MIXED)])
mixed.key_by(lambda t: t[0]).process(Count()).print("undeclared")

words = env.from_collection(WORDS, type_info=Types.STRING())
words.key_by(ByLength(), key_type=Types.INT()).process(Count(), output_type=PAIR).print("length")
words.key_by(lambda w: w[0], key_type=Types.STRING()).process(Count(), output_type=PAIR).print(
    "letter"
)
words.key_by(
    lambda w: (w[0], len(w)), key_type=Types.TUPLE([Types.STRING(), Types.INT()])
).process(Count(), output_type=PAIR).print("tuple")
words.key_by(lambda w: len(w) > 3, key_type=Types.BOOLEAN()).process(
    Count(), output_type=PAIR
).print("boolean")
words.key_by(lambda w: [len(w)], key_type=Types.LIST(Types.INT())).process(
    Count(), output_type=PAIR
).print("list")
env.execute("keys")
