"""A union of three, rebalance, shuffle and forward at parallelism 2, names and uids."""
from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
ones = env.from_collection([1, 2, 3], type_info=Types.INT())
tens = env.from_collection([10, 20], type_info=Types.INT())
hundreds = env.from_collection([100, 2, 300], type_info=Types.INT())
together = ones.union(tens, hundreds)

together.map(lambda n: n + 1, output_type=Types.INT()).name("increment").uid("inc").print()
together.rebalance().map(lambda n: n * 2, output_type=Types.INT()).print("rebalanced")
together.shuffle().filter(lambda n: n >= 10).print("shuffled")
(
    together.map(lambda n: -n, output_type=Types.INT())
    .set_parallelism(1)
    .rebalance()
    .map(lambda n: n - 1, output_type=Types.INT())
    .forward()
    .map(str, output_type=Types.STRING())
    .print("forwarded")
)
together.union(ones).key_by(lambda n: n % 10, key_type=Types.INT()).map(
    lambda n: n, output_type=Types.INT()
).print("keyed")
ones.map(lambda n: n).set_parallelism(1).print("single").set_parallelism(1)
env.execute("union")
