"""Count words: a running count per word, in keyed state that survives a crash."""

from collections.abc import Iterator

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(
        self, value: str, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield value, count


env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(1000)
lines = env.from_collection(["to be or not to be"], Types.STRING())
words = lines.flat_map(str.split, Types.STRING())
words.key_by(lambda word: word, Types.STRING()).process(Count()).print()
env.execute("word count")
