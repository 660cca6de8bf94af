"""How nested types are printed: tuples, rows, lists, maps and arrays inside each other."""
import datetime
import decimal

from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

PAIR = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
ROW = Types.ROW([Types.STRING(), Types.BOOLEAN()])
NAMED = Types.ROW_NAMED(["x", "y"], [Types.STRING(), Types.BOOLEAN()])
DAY = datetime.datetime(2024, 1, 31, 1, 2, 3, 456000)
CASES = [
    ("tuple in tuple", Types.TUPLE([Types.INT(), PAIR]), (1, ("a", 1e10))),
    ("row in tuple", Types.TUPLE([Types.INT(), NAMED]), (1, Row("a", True))),
    ("list in tuple", Types.TUPLE([Types.LIST(Types.STRING()), Types.LONG()]), (["a", "b"], 2)),
    ("map in tuple", Types.TUPLE([Types.MAP(Types.STRING(), PAIR)]), ({"k": ("a", 0.5)},)),
    ("ints in tuple", Types.TUPLE([Types.PRIMITIVE_ARRAY(Types.INT())]), ([1, 2],)),
    ("texts in tuple", Types.TUPLE([Types.BASIC_ARRAY(Types.STRING())]), (["a", "b"],)),
    ("tuples in tuple", Types.TUPLE([Types.OBJECT_ARRAY(PAIR)]), ([("a", 1.0)],)),
    (
        "dates in tuple",
        Types.TUPLE([Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.BIG_DEC()]),
        (DAY.date(), datetime.time(1, 2, 3), DAY, decimal.Decimal("1.10")),
    ),
    (
        "numbers in tuple",
        Types.TUPLE([Types.BYTE(), Types.SHORT(), Types.FLOAT(), Types.BOOLEAN()]),
        (1, 2, 4.5, False),
    ),
    ("tuples in list", Types.LIST(PAIR), [("a", 1.0), ("b", 1e-5)]),
    ("rows in list", Types.LIST(ROW), [Row("a", True)]),
    ("lists in map", Types.MAP(Types.STRING(), Types.LIST(Types.INT())), {"a": [1, 2]}),
    ("row in row", Types.ROW([Types.INT(), ROW]), Row(1, Row("a", True))),
    ("tuple in row", Types.ROW([Types.INT(), PAIR]), Row(1, ("a", 1e10))),
    ("list in row", Types.ROW([Types.LIST(Types.STRING())]), Row(["a", "b"])),
    ("map in row", Types.ROW([Types.MAP(Types.STRING(), Types.INT())]), Row({"a": 1})),
    ("nulls in row", Types.ROW([Types.STRING(), Types.INT(), PAIR]), Row(None, None, None)),
]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
start = env.from_collection([0], type_info=Types.INT())
for name, type_info, value in CASES:
    start.map(lambda _, value=value: value, output_type=type_info).print(name)
env.execute("nested types")
