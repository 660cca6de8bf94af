"""Windows of so many records, and one window for all."""
from pyflink.common import Types
from pyflink.datastream import (
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from pyflink.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    GlobalWindows,
    PurgingTrigger,
)


class Show(WindowFunction):
    def apply(self, key, window, inputs):
        yield f"{key} {type(window).__name__}: {[value[1] for value in inputs]}"


class ShowWithContext(ProcessWindowFunction):
    def process(self, key, context, elements):
        return [f"{key} {context.window()}: {[value[1] for value in elements]}"]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
keyed = env.from_collection(
    [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5), ("a", 6), ("a", 7), ("b", 8), ("a", 9)],
    type_info=PAIR,
).key_by(lambda r: r[0], Types.STRING())

keyed.count_window(2).apply(Show(), Types.STRING()).print("count")
keyed.count_window(3).reduce(lambda x, y: (x[0], x[1] + y[1]), output_type=PAIR).print("reduce")
keyed.count_window(3, 2).apply(Show(), Types.STRING()).print("sliding")
keyed.count_window(2, 3).process(ShowWithContext(), Types.STRING()).print("gaps")
keyed.window(CountTumblingWindowAssigner.of(3)).process(ShowWithContext(), Types.STRING()).print(
    "tumbling assigner"
)
keyed.window(CountSlidingWindowAssigner.of(4, 2)).process(ShowWithContext(), Types.STRING()).print(
    "sliding assigner"
)
keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2)).apply(
    Show(), Types.STRING()
).print("global kept")
keyed.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(2))).process(
    ShowWithContext(), Types.STRING()
).print("global purged")
keyed.window(GlobalWindows.create()).apply(Show(), Types.STRING()).print("never")
env.execute("count and global")
