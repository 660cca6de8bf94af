"""A stream without keys connected with a broadcast one: contexts, and states that are read only."""
from pyflink.common import Types
from pyflink.datastream import (
    BroadcastProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor

WORDS = MapStateDescriptor("words", Types.INT(), Types.LIST(Types.STRING()))


class Translate(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        words = ctx.get_broadcast_state(WORDS)
        can_write = hasattr(words, "put") or hasattr(words, "remove")
        yield f"{value} {words.get(value)} {words.contains(value)} {can_write}"
        if value == 3:
            yield f"{ctx.timestamp()} {ctx.current_watermark()} {ctx.current_processing_time() > 0}"
            yield f"all {sorted(words.items())} {sorted(words)}"

    def process_broadcast_element(self, value, ctx):
        words = ctx.get_broadcast_state(WORDS)
        words[value[0]] = [*(words[value[0]] or []), value[1]]
        if value[1] == "stop":
            words.clear()
        return None


class Count(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield f"record {value}"

    def process_broadcast_element(self, value, ctx):
        yield f"word {value[1]}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(2)
numbers = env.from_collection([1, 2, 3, 4], type_info=Types.INT())
pairs = [(9, "stop"), (1, "one"), (2, "two"), (1, "eins"), (3, "three")]
words = env.from_collection(
    pairs, type_info=Types.TUPLE([Types.INT(), Types.STRING()])
).set_parallelism(1)

numbers.connect(words.broadcast(WORDS)).process(Translate(), output_type=Types.STRING()).print("t")
numbers.rebalance().connect(words.broadcast(WORDS)).process(
    Count(), output_type=Types.STRING()
).set_parallelism(3).name("count").print("c")
env.execute("words")
