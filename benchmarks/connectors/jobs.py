"""The jobs of penstock that are measured, as a PyFlink user would write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.connectors.orders import customer_of
from penstock.common import (
    Configuration,
    SerializationSchema,
    SimpleStringSchema,
    Types,
    WatermarkStrategy,
)
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

COUNT = "count"
ORDERS = "orders"
Counted = tuple[str, int]


class Count(KeyedProcessFunction[str, str, Counted]):
    """Count the orders of each customer and hand on every update."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[Counted]:
        seen = (self._seen.value() or 0) + 1
        self._seen.update(seen)
        yield customer_of(value), seen


class CountedKey(SerializationSchema):
    def serialize(self, element: Counted) -> bytes:
        return element[0].encode()


class CountedValue(SerializationSchema):
    def serialize(self, element: Counted) -> bytes:
        return b"%d" % element[1]


def environment(settings: Mapping[str, str], rows_per_batch: int) -> StreamExecutionEnvironment:
    """An environment with micro-batches of one size, in place of sizes that follow the clock."""
    chosen = {
        "penstock.micro-batch.initial-records": str(rows_per_batch),
        "penstock.micro-batch.max-records": str(rows_per_batch),
        "penstock.micro-batch.target-duration": "10 min",
        **settings,
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(chosen))


def orders_in(env: StreamExecutionEnvironment, bootstrap: str, topic: str) -> Any:
    """Lines of a topic, up to what is there when the job starts."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    return env.from_source(source, WatermarkStrategy.no_watermarks(), ORDERS).uid(ORDERS)


def counts(lines: Any) -> Any:
    """How many orders a customer has by now, for each order."""
    counted = Types.TUPLE([Types.STRING(), Types.LONG()])
    keyed = lines.key_by(customer_of, key_type=Types.STRING())
    return keyed.process(Count(), output_type=counted).name(COUNT).uid(COUNT)


def sink_of_counts(bootstrap: str, topic: str, guarantee: DeliveryGuarantee) -> KafkaSink:
    records = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(CountedKey())
        .set_value_serialization_schema(CountedValue())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(bootstrap)
        .set_delivery_guarantee(guarantee)
        .set_transactional_id_prefix(topic)
        .set_record_serializer(records)
        .build()
    )
