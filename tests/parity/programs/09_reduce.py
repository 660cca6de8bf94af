"""reduce with a lambda and with a ReduceFunction that has open(); STREAMING and BATCH."""
from pyflink.common import Types
from pyflink.datastream import (
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)


class Join(ReduceFunction):
    """Joins texts with a separator that only open() sets."""

    def __init__(self, separator):
        self.wanted = separator
        self.separator = None

    def open(self, runtime_context: RuntimeContext):
        self.separator = self.wanted

    def reduce(self, value1, value2):
        return (value1[0], value1[1] + self.separator + value2[1])


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]

for mode in (RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(mode)
    env.set_parallelism(1)
    tag = mode.name.lower()
    keyed = (
        env.from_collection(WORDS, type_info=Types.STRING())
        .map(lambda w: (len(w), w), output_type=Types.TUPLE([Types.INT(), Types.STRING()]))
        .key_by(lambda t: t[0], key_type=Types.INT())
    )
    keyed.reduce(Join("+")).print(tag + " class")
    keyed.reduce(lambda a, b: (a[0], min(a[1], b[1]))).print(tag + " lambda")
    untyped = env.from_collection(WORDS).key_by(len)
    untyped.reduce(lambda a, b: a + b[0]).print(tag + " untyped")
    env.execute("reduce, " + tag)
