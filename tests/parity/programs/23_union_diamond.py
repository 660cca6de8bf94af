"""One source, several branches, met again by union and by connect; unions of unions."""
from pyflink.common import Types
from pyflink.datastream import CoMapFunction, StreamExecutionEnvironment


class Signed(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return -value


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
source = env.from_collection(list(range(1, 11)), type_info=Types.INT())
even = source.filter(lambda n: n % 2 == 0)
squares = source.map(lambda n: n * n, output_type=Types.INT())
halves = even.map(lambda n: n // 2, output_type=Types.INT())
thirds = source.map(lambda n: n // 3, output_type=Types.INT()).set_parallelism(1)

even.union(squares).map(lambda n: n, output_type=Types.INT()).print("two branches")
even.union(squares.union(thirds, source), halves).filter(lambda n: n < 5).print("unions")
source.union(source).filter(lambda n: n > 9).print("itself")
even.union(squares, halves).key_by(lambda n: n % 3, Types.INT()).sum().filter(
    lambda n: n == 278
).print("keyed")
counts = squares.key_by(lambda n: n % 2, Types.INT()).map(lambda n: n, output_type=Types.INT())
counts.union(source.key_by(lambda n: n)).filter(lambda n: n > 60).print("behind a key")

even.connect(squares).map(Signed(), output_type=Types.INT()).print("connected")
source.connect(even.union(halves)).key_by(lambda n: n % 2, lambda n: n % 2, Types.INT()).map(
    Signed(), output_type=Types.INT()
).print("connected by key")
env.execute("diamond")
