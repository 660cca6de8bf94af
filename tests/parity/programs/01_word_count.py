"""Word count: lines split by a generator, typed tuples, a running sum per word."""
from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

LINES = [
    "to be or not to be",
    "that is the question",
    "",
    "whether tis nobler in the mind to suffer",
]


def split(line):
    for word in line.split():
        yield word


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
counts = (
    env.from_collection(LINES, type_info=Types.STRING())
    .flat_map(split, output_type=Types.STRING())
    .map(lambda w: (w, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda t: t[0], key_type=Types.STRING())
    .reduce(lambda a, b: (a[0], a[1] + b[1]))
)
counts.print()
env.execute("word count")
