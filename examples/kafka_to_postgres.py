"""Kafka to PostgreSQL, exactly once: the running total of each customer's orders.

    penstock run --supervise -c config.yaml examples/kafka_to_postgres.py BOOTSTRAP DSN [--once]

The topic `orders` has values such as {"customer": "ann", "cents": 250}. With --once the program
reads what the topic holds now and ends; without, it runs until it is stopped. The table:

    CREATE TABLE totals (customer text, orders bigint, cents bigint);
"""

import sys
from collections.abc import Iterator

from penstock.common import Row, Types, WatermarkStrategy
from penstock.datastream import RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

TEXT, LONG = Types.STRING(), Types.LONG()
ORDER = Types.ROW_NAMED(["customer", "cents"], [TEXT, LONG])
TOTAL = Types.ROW_NAMED(["customer", "orders", "cents"], [TEXT, LONG, LONG])


class AddUp(KeyedProcessFunction[str, Row, Row]):
    def open(self, runtime_context: RuntimeContext) -> None:
        account = ValueStateDescriptor("account", Types.TUPLE([LONG, LONG]))
        self.account = runtime_context.get_state(account)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        orders, cents = self.account.value() or (0, 0)
        self.account.update((orders + 1, cents + value["cents"]))
        yield Row(customer=value["customer"], orders=orders + 1, cents=cents + value["cents"])


def main(bootstrap: str, dsn: str, *, once: bool) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)  # rows become visible when their checkpoint completes
    schema = JsonRowDeserializationSchema.builder().type_info(ORDER).build()
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics("orders")
        .set_group_id("totals")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(schema)
    )
    if once:
        source.set_bounded(KafkaOffsetsInitializer.latest())
    table = PostgresSink.builder().set_dsn(dsn).set_table("totals").build()
    orders = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")
    totals = orders.uid("orders").key_by(lambda order: order["customer"], TEXT)
    totals.process(AddUp(), TOTAL).uid("totals").sink_to(table).uid("table")
    env.execute("kafka to postgres")


if __name__ == "__main__":
    main(*sys.argv[1:3], once="--once" in sys.argv)
