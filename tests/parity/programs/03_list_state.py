"""ListState: get, add, add_all, update and clear."""
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor


class Commands(KeyedProcessFunction):
    """Runs one list operation per record and shows what the list holds afterwards."""

    def open(self, runtime_context):
        self.items = runtime_context.get_list_state(ListStateDescriptor("items", Types.INT()))

    def process_element(self, value, ctx):
        key, op, arg = value
        if op == "add":
            self.items.add(arg)
        elif op == "add_all":
            self.items.add_all(arg)
        elif op == "update":
            self.items.update(arg)
        elif op == "clear":
            self.items.clear()
        yield "%s %s %s" % (key, op, [i for i in self.items])


DATA = [
    ("a", "get", None),
    ("a", "add", 3),
    ("b", "add", 30),
    ("a", "add", 1),
    ("a", "add_all", [2, 2]),
    ("b", "update", [7, 8, 9]),
    ("a", "get", None),
    ("a", "update", [5]),
    ("b", "add", 10),
    ("a", "clear", None),
    ("a", "add", 4),
    ("b", "get", None),
]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(DATA).key_by(lambda t: t[0], key_type=Types.STRING()).process(
    Commands(), output_type=Types.STRING()
).print()
env.execute("list state")
