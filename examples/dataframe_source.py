"""A Spark DataFrame as a source: Spark reads and joins, a keyed function processes the result."""

from penstock.common import Row, Types
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
spark = env.get_spark_session()

orders = spark.createDataFrame(
    [(1, "tea", 3), (2, "tea", 4), (3, "ink", 1), (4, "ink", None)], "id int, item string, n int"
)
prices = spark.createDataFrame([("tea", 2.5), ("ink", 9.0)], "item string, price double")
joined = orders.join(prices, "item").select("item", "n", "price")


def worth(order: Row) -> tuple[str, float]:
    return order.item, (order.n or 0) * order.price


totals = (
    env.from_dataframe(joined, "orders")
    .map(worth, Types.TUPLE([Types.STRING(), Types.DOUBLE()]))
    .key_by(lambda pair: pair[0], Types.STRING())
    .sum(1)
)
last = {}
with totals.execute_and_collect("worth per item") as results:
    for item, total in results:
        last[item] = total
print(sorted(last.items()))
