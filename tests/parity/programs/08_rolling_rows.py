"""sum, min, max, min_by and max_by on rows, by position and by field name, with ties."""
from pyflink.common import Row, Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

DATA = [
    ("a", 5, 0.5), ("b", 2, 1.0), ("a", 3, 0.25), ("a", 3, 8.0), ("b", 7, 2.5), ("a", 9, 4.0),
    ("b", 7, 0.75), ("a", 9, 1.5),
]
FIELDS = [Types.STRING(), Types.INT(), Types.DOUBLE()]

for mode in (RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(mode)
    env.set_parallelism(1)
    tag = mode.name.lower()
    source = env.from_collection(DATA)

    positional = source.map(lambda t: Row(*t), output_type=Types.ROW(FIELDS)).key_by(
        lambda r: r[0], key_type=Types.STRING()
    )
    positional.sum(1).print(tag + " sum(1)")
    positional.min(2).print(tag + " min(2)")
    positional.max_by(1).print(tag + " max_by(1)")

    named = source.map(
        lambda t: Row(name=t[0], n=t[1], x=t[2]),
        output_type=Types.ROW_NAMED(["name", "n", "x"], FIELDS),
    ).key_by(lambda r: r.name, key_type=Types.STRING())
    named.sum("x").print(tag + " sum(x)")
    named.max("n").print(tag + " max(n)")
    named.min_by("n").print(tag + " min_by(n)")
    named.max_by("x").print(tag + " max_by(x)")
    env.execute("rolling rows, " + tag)
