"""sum, min, max, min_by and max_by on tuples in STREAMING: one result for each record."""
from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

# (key, value, note); the note shows which record a result came from, ties included
DATA = [
    ("a", 5, "a1"), ("b", 2, "b1"), ("a", 3, "a2"), ("a", 3, "a3"), ("b", 7, "b2"),
    ("a", 9, "a4"), ("b", 7, "b3"), ("a", 9, "a5"), ("b", 2, "b4"), ("c", 0, "c1"),
]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
env.set_parallelism(1)
typed = env.from_collection(
    DATA, type_info=Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()])
).key_by(lambda t: t[0], key_type=Types.STRING())
typed.sum(1).print("sum")
typed.min(1).print("min")
typed.max(1).print("max")
typed.min_by(1).print("min_by")
typed.max_by(1).print("max_by")

untyped = env.from_collection(DATA).key_by(lambda t: t[0])
untyped.sum(1).print("untyped sum")
untyped.max_by(1).print("untyped max_by")
untyped.min(2).print("untyped min of text")

numbers = env.from_collection([4, 1, 3, 2, 6, 5], type_info=Types.INT())
numbers.key_by(lambda n: n % 2, key_type=Types.INT()).sum().print("numbers sum")
numbers.key_by(lambda n: n % 2, key_type=Types.INT()).max().print("numbers max")
env.execute("rolling, streaming")
