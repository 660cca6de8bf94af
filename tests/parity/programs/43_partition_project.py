"""partition_custom sends records where it says, project keeps some fields."""
from pyflink.common import Row, Types
from pyflink.datastream import (
    KeySelector,
    MapFunction,
    Partitioner,
    StreamExecutionEnvironment,
)


class Where(MapFunction):
    def open(self, runtime_context):
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return f"{value} in {self.index}"


class ByLength(Partitioner):
    def partition(self, key, num_partitions):
        return len(key) % num_partitions


class Name(KeySelector):
    def get_key(self, value):
        return value[0]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
pairs = env.from_collection([("a", 1), ("bb", 2), ("ccc", 3), ("dddd", 4)], type_info=PAIR)
pairs.partition_custom(ByLength(), Name()).map(Where(), Types.STRING()).set_parallelism(3).print(
    "class"
)
pairs.partition_custom(lambda key, count: key % count, lambda pair: pair[1] + 1).map(
    Where(), Types.STRING()
).set_parallelism(2).print("lambda")

triples = env.from_collection(
    [("a", 1, 1.5), ("b", 2, 2.5)],
    type_info=Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()]),
)
triples.project(0, 2).print("two")
triples.project(1).print("one")
triples.project(2, 1, 0).print("turned")
triples.project(2, 0).map(lambda t: t[0] * 2, Types.DOUBLE()).print("behind")
env.execute("partition and project")
