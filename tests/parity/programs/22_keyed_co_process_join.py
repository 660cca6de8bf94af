"""A join in a KeyedCoProcessFunction, streaming and in batch, its results keyed again."""
from pyflink.common import Row, Types
from pyflink.datastream import (
    KeyedCoProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor

ORDERS = [
    Row("ann", 1, 2.5),
    Row("bob", 2, 1.0),
    Row("ann", 2, 4.0),
    Row("cid", 9, 8.0),
    Row("bob", 1, 0.5),
]
ITEMS = [(1, "nut"), (2, "bolt"), (2, "screw"), (3, "nail")]


def order():
    return Types.ROW_NAMED(
        ["user", "item", "amount"], [Types.STRING(), Types.INT(), Types.DOUBLE()]
    )


class Join(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.orders = runtime_context.get_list_state(ListStateDescriptor("orders", order()))
        self.names = runtime_context.get_map_state(
            MapStateDescriptor("names", Types.STRING(), Types.INT())
        )

    def process_element1(self, value, ctx):
        self.orders.add(value)
        for name in self.names.keys():
            yield (ctx.get_current_key(), value.user, name, value["amount"])

    def process_element2(self, value, ctx):
        self.names.put(value[1], value[0])
        for order in self.orders.get():
            yield (ctx.get_current_key(), order[0], value[1], order[2])


def join(mode, name):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.set_runtime_mode(mode)
    orders = env.from_collection(ORDERS, type_info=order())
    items = env.from_collection(ITEMS, type_info=Types.TUPLE([Types.INT(), Types.STRING()]))
    joined = Types.TUPLE([Types.INT(), Types.STRING(), Types.STRING(), Types.DOUBLE()])
    orders.key_by(lambda o: o.item, Types.INT()).connect(
        items.key_by(lambda i: i[0], Types.INT())
    ).process(Join(), output_type=joined).print(name)
    cheap = orders.filter(lambda o: o.amount < 4)
    cheap.connect(items).key_by(lambda o: o[1], lambda i: i[0]).process(
        Join(), output_type=joined
    ).key_by(lambda r: r[1]).sum(3).filter(lambda r: r[1] == "ann").print(f"{name} ann")
    env.execute(name)


join(RuntimeExecutionMode.STREAMING, "streaming")
join(RuntimeExecutionMode.BATCH, "batch")
