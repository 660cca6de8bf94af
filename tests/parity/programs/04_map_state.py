"""MapState: put, get, contains, put_all, remove, is_empty, clear and the three iterations."""
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor


class Commands(KeyedProcessFunction):
    """Runs one map operation per record and shows the whole map afterwards, sorted."""

    def open(self, runtime_context):
        self.map = runtime_context.get_map_state(
            MapStateDescriptor("map", Types.STRING(), Types.LONG())
        )

    def process_element(self, value, ctx):
        key, op, field, number = value
        answer = "-"
        if op == "put":
            self.map.put(field, number)
        elif op == "put_all":
            self.map.put_all({c: number for c in field})
        elif op == "get":
            answer = self.map.get(field)
        elif op == "contains":
            answer = self.map.contains(field)
        elif op == "in":
            answer = field in self.map
        elif op == "remove":
            self.map.remove(field)
        elif op == "is_empty":
            answer = self.map.is_empty()
        elif op == "clear":
            self.map.clear()
        yield (key, op, answer, sorted(self.map.items()))
        yield (key, "keys", sorted(self.map.keys()), "values", sorted(self.map.values()))


DATA = [
    ("a", "is_empty", None, 0), ("a", "put", "x", 1), ("b", "put", "x", 100),
    ("a", "put", "y", 2), ("a", "put", "x", 3), ("a", "get", "x", 0), ("b", "get", "x", 0),
    ("a", "contains", "x", 0), ("a", "contains", "z", 0), ("b", "in", "y", 0),
    ("a", "put_all", "pqr", 9), ("a", "remove", "y", 0), ("a", "is_empty", None, 0),
    ("b", "clear", None, 0), ("b", "is_empty", None, 0), ("b", "put", "n", 7),
    ("a", "in", "q", 0),
]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(DATA).key_by(lambda t: t[0]).process(Commands()).print()
env.execute("map state")
