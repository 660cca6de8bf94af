"""How values without a declared type are printed, with and without an identifier."""
import datetime
import decimal

from pyflink.common import Row
from pyflink.datastream import StreamExecutionEnvironment

VALUES = [
    "text", "", 1, 10**30, True, False, None, 1.0, 1e10, 1e-7, 0.1, float("inf"),
    ("a", 1), ("a",), (), ["a", 1, None], {"a": 1, "b": [2]}, {3}, ("x", ("y", [1.5, None])),
    datetime.date(2024, 1, 31), datetime.datetime(2024, 1, 31, 1, 2, 3), decimal.Decimal("1.10"),
    Row("a", 1, True, None), Row(name="x", n=1), Row(1, Row("in", 2)), [Row(k=("t", 1))],
]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(VALUES).print()
mapped = env.from_collection(VALUES).map(lambda v: (type(v).__name__, v))
mapped.print("with type")
env.from_collection(["not text"]).map(lambda v: [v]).print("")
env.execute("untyped")
