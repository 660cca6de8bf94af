"""A shop with a state per customer: every kind of keyed state, once each."""

from collections.abc import Iterator
from zlib import crc32

from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream import state as s
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, RuntimeContext

Purchase = tuple[str, str, int]
WHO, WHAT, PRICE = ("ann bob ann ann bob", "tea milk cake tea tea", (4, 1, 7, 4, 5))
PURCHASES: list[Purchase] = list(zip(WHO.split(), WHAT.split(), PRICE, strict=True))


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Remember(KeyedProcessFunction[str, Purchase, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        get, pair = runtime_context, Types.TUPLE([Types.LONG(), Types.LONG()])
        self.last = get.get_state(s.ValueStateDescriptor("last", Types.STRING()))
        self.prices = get.get_list_state(s.ListStateDescriptor("prices", Types.LONG()))
        self.items = get.get_map_state(s.MapStateDescriptor("items", Types.STRING(), Types.LONG()))
        self.dearest = get.get_reducing_state(s.ReducingStateDescriptor("max", max, Types.LONG()))
        self.mean = get.get_aggregating_state(s.AggregatingStateDescriptor("mean", Mean(), pair))
        self.check = get.get_raw_state(s.RawStateDescriptor("checksum"))

    def process_element(self, value: Purchase, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        who, item, price = value
        self.items.put(item, (self.items.get(item) or 0) + 1)
        for state in (self.prices, self.dearest, self.mean):
            state.add(price)
        so_far = int.from_bytes(self.check.get() or b"")
        self.check.set(crc32(item.encode(), so_far).to_bytes(4))
        yield (
            f"{who}: {item} after {self.last.value()}, prices {list(self.prices.get())}, "
            f"items {dict(self.items.items())}, dearest {self.dearest.get()}, "
            f"mean {self.mean.get()}, checksum {self.check.get()!r}"
        )
        self.last.update(item)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(PURCHASES).key_by(lambda p: p[0]).process(Remember(), Types.STRING()).print()
env.execute("keyed state")
