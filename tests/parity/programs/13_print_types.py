"""How values of each declared type are printed."""
import datetime
import decimal

from pyflink.common import Instant, Types
from pyflink.datastream import StreamExecutionEnvironment

dec = decimal.Decimal
CASES = [
    ("string", Types.STRING(), ["x", "", "two words"]),
    ("byte", Types.BYTE(), [5, -128]),
    ("short", Types.SHORT(), [7, -32768]),
    ("int", Types.INT(), [1, -5]),
    ("long", Types.LONG(), [2**40, -(2**63)]),
    ("boolean", Types.BOOLEAN(), [True, False]),
    ("float", Types.FLOAT(), [1.0, 0.1, 1e10, 1e-5, 123456.789, float("inf"), float("nan")]),
    ("double", Types.DOUBLE(), [1.0, 0.1, 1e10, 1e7, 1e6, 0.001, 1e-5, -0.0, 1 / 3, float("nan")]),
    ("decimal", Types.BIG_DEC(), [dec("1.10"), dec("1E+3"), dec("-0.0000001"), dec("0")]),
    ("date", Types.SQL_DATE(), [datetime.date(2024, 1, 31), datetime.date(1969, 7, 20)]),
    ("time", Types.SQL_TIME(), [datetime.time(1, 2, 3), datetime.time(23, 59, 59)]),
    (
        "timestamp",
        Types.SQL_TIMESTAMP(),
        [datetime.datetime(2024, 1, 31, 1, 2, 3, 456000), datetime.datetime(2024, 1, 31, 1, 2)],
    ),
    ("instant", Types.INSTANT(), [Instant.of_epoch_milli(1500), Instant.of_epoch_milli(0)]),
    ("list", Types.LIST(Types.INT()), [[1, 2, 3], []]),
    ("map", Types.MAP(Types.STRING(), Types.DOUBLE()), [{"a": 1.0, "b": 1e10}, {}]),
    ("tuple", Types.TUPLE([Types.STRING(), Types.INT(), Types.BOOLEAN()]), [("a", 1, True)]),
]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
start = env.from_collection([0], type_info=Types.INT())
for name, type_info, values in CASES:
    start.flat_map(lambda _, values=values: values, output_type=type_info).print(name)
env.execute("types")
