"""The same sums and extremes twice: as they change (STREAMING) and once at the end (BATCH)."""

from penstock.common import Types
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

SALES = [
    ("oslo", 5, "mon"),
    ("rome", 3, "mon"),
    ("oslo", 2, "tue"),
    ("rome", 9, "tue"),
    ("oslo", 7, "wed"),
]
SALE = Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING()])


def run(mode: RuntimeExecutionMode) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(mode)
    env.set_parallelism(1)
    by_city = env.from_collection(SALES, SALE).key_by(lambda sale: sale[0], Types.STRING())
    # sum and max keep the other fields of the key's first record; max_by takes the whole record.
    by_city.sum(1).print("sum")
    by_city.max(1).print("max")
    by_city.max_by(1).print("max_by")
    env.execute(f"rolling aggregates, {mode.name}")


if __name__ == "__main__":
    for mode in (RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH):
        print(f"-- {mode.name}")
        run(mode)
