"""A stream connected with a broadcast one: its records come to every subtask of the other."""
from pyflink.common import Types
from pyflink.datastream import CoFlatMapFunction, CoMapFunction, StreamExecutionEnvironment


class Mark(CoMapFunction):
    def map1(self, value):
        return f"record {value}"

    def map2(self, value):
        return f"rule {value}"


class Index(CoFlatMapFunction):
    def flat_map1(self, value):
        return ()

    def flat_map2(self, value):
        yield value * 10
        yield value * 10 + 1


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(3)
records = env.from_collection([1, 2, 3, 4], type_info=Types.INT())
rules = env.from_collection([7, 8], type_info=Types.INT())

records.connect(rules.broadcast()).map(Mark(), output_type=Types.STRING()).print("behind")
rules.broadcast().connect(records).map(Mark(), output_type=Types.STRING()).print("before")
records.rebalance().connect(rules.broadcast()).flat_map(
    Index(), output_type=Types.INT()
).set_parallelism(2).print("two")
env.execute("broadcast")
