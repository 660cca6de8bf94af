"""Orders from Kafka: a number and a total per customer, into Kafka and PostgreSQL, exactly once.

    penstock run --supervise -D spark.jars=... \
        examples/kafka_orders.py DIRECTORY BOOTSTRAP DSN ORDERS

Orders are JSON in the topic `orders`; ORDERS is their number. Each becomes a message in the topic
`totals` and a row in the table `totals`. `make demo-kafka` runs this and kills each part with -9.
"""

import json
import sys
from collections.abc import Iterator

from penstock.common import (
    Configuration,
    SerializationSchema,
    SimpleStringSchema,
    Types,
    WatermarkStrategy,
)
from penstock.datastream import RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

PARTITIONS = 4
TEXT, LONG = Types.STRING(), Types.LONG()

Order = tuple[int, str, int]  # id, customer, cents
Booked = tuple[int, str, int, int]  # id, customer, the customer's number, the customer's total


def parse(text: str) -> Order:
    order = json.loads(text)
    return order["id"], order["customer"], order["cents"]


class Book(KeyedProcessFunction[str, Order, Booked]):
    def open(self, runtime_context: RuntimeContext) -> None:
        account = Types.TUPLE([LONG, LONG])
        self.account = runtime_context.get_state(ValueStateDescriptor("account", account))

    def process_element(self, value: Order, ctx: KeyedProcessFunction.Context) -> Iterator[Booked]:
        number, total = self.account.value() or (0, 0)
        account = number + 1, total + value[2]
        self.account.update(account)
        yield value[0], value[1], *account


class Customer(SerializationSchema):
    def serialize(self, element: Booked) -> bytes:
        return element[1].encode()


class Line(SerializationSchema):
    def serialize(self, element: Booked) -> bytes:
        return json.dumps(element).encode()


def main(directory: str, bootstrap: str, dsn: str, orders: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.checkpointing.dir": f"{directory}/checkpoints"})
    )
    env.enable_checkpointing(1000)
    ends = {KafkaTopicPartition("orders", p): orders // PARTITIONS for p in range(PARTITIONS)}
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics("orders")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.offsets(ends))
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    messages = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("totals")
        .set_key_serialization_schema(Customer())
        .set_value_serialization_schema(Line())
        .build()
    )
    topic = (
        KafkaSink.builder()
        .set_bootstrap_servers(bootstrap)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("totals")
        .set_record_serializer(messages)
        .build()
    )
    table = PostgresSink.builder().set_dsn(dsn).set_table("totals").build()
    orders_in = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    parsed = orders_in.map(parse, Types.TUPLE([LONG, TEXT, LONG])).name("parse")
    booked = parsed.key_by(lambda order: order[1], TEXT).process(
        Book(), Types.TUPLE([LONG, TEXT, LONG, LONG])
    )
    booked = booked.name("book").uid("book")
    booked.sink_to(topic).name("topic").uid("topic")
    booked.sink_to(table).name("table").uid("table")
    env.execute("kafka orders")


if __name__ == "__main__":
    place, broker, database, number = sys.argv[1:]
    main(place, broker, database, int(number))
