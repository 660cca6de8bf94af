"""map over two connected streams of different types: both methods, None, names, a union beside."""
from pyflink.common import Types
from pyflink.datastream import CoMapFunction, StreamExecutionEnvironment


class Describe(CoMapFunction):
    def open(self, runtime_context):
        self.mark = "!"

    def map1(self, value):
        return None if value % 3 == 0 else f"number {value}{self.mark}"

    def map2(self, value):
        return f"text {value}{self.mark}" if value else None


class Keep(CoMapFunction):
    def map1(self, value):
        return ("left", value)

    def map2(self, value):
        return ("right", value)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_collection(list(range(1, 8)), type_info=Types.INT())
texts = env.from_collection(["a", "", "bc"], type_info=Types.STRING())
more = env.from_collection(["d", "e"], type_info=Types.STRING())

numbers.connect(texts).map(Describe(), output_type=Types.STRING()).name("described").print("typed")
numbers.connect(texts.union(more)).map(Keep()).print("untyped")
texts.connect(numbers).map(
    Keep(), output_type=Types.TUPLE([Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
).map(lambda pair: pair[0]).print("swapped")
numbers.connect(numbers).map(
    Keep(), output_type=Types.TUPLE([Types.STRING(), Types.INT()])
).print("itself")
env.execute("co map")
