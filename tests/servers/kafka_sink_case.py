"""Kafka sinks as the common suite of sinks wants them: a sink, and a look at what it has shown."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from penstock.common.serialization import SerializationSchema
from penstock.connectors.contracts.sink import DeliveryGuarantee
from penstock.connectors.kafka.sink.kafka_sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.sink.serialization import KafkaRecordSerializationSchema
from tests.contracts.sink_harness import Case, files_in

_numbers = itertools.count()


class Texts(SerializationSchema):
    """Whatever a value is, as text."""

    def serialize(self, element: Any) -> bytes:
        return str(element).encode()


def new_topic(kafka: Any, partitions: int = 1, **config: Any) -> str:
    topic = f"sink-{next(_numbers)}"
    kafka.create_topic(topic, partitions, **config)
    return topic


def sink_builder(kafka: Any, topic: str, guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_delivery_guarantee(guarantee)
        .set_transactional_id_prefix(f"tx-{topic}")
        .set_record_serializer(serializer.set_value_serialization_schema(Texts()).build())
    )


def exactly_once_case(kafka: Any, directory: Path, topic: str | None = None) -> Case:
    name = topic or new_topic(kafka)
    sink = sink_builder(kafka, name, DeliveryGuarantee.EXACTLY_ONCE).build()
    return Case(
        sink,
        lambda: [value.decode() for _, value in committed_records(kafka.bootstrap, name)],
        lambda: files_in(directory / "work"),
    )


def at_least_once_case(kafka: Any, directory: Path, topic: str | None = None) -> Case:
    name = topic or new_topic(kafka)
    sink = sink_builder(kafka, name, DeliveryGuarantee.AT_LEAST_ONCE).build()
    return Case(sink, lambda: [v.decode() for _, v in committed_records(kafka.bootstrap, name)])


def committed_records(
    bootstrap: str, topic: str, isolation: str = "read_committed"
) -> list[tuple[bytes | None, bytes]]:
    """Read everything, partition after partition, with a plain consumer."""
    return [(m.key(), m.value()) for m in committed_messages(bootstrap, topic, isolation)]


def committed_messages(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    messages: list[Any] = []
    consumer = _consumer(bootstrap, isolation)
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        for partition in sorted(partitions):
            if isolation == "read_committed":
                _await_ended_transactions(bootstrap, consumer, topic, partition)
            messages += _read_to_the_end(consumer, topic, partition)
    finally:
        consumer.close()
    return messages


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looking",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 2,
        }
    )


def _await_ended_transactions(
    bootstrap: str, consumer: Consumer, topic: str, partition: int
) -> None:
    """Wait for a broker to write what it has promised: it says "committed" a little earlier.

    Not for long, since a transaction may as well be open.
    """
    everything = _consumer(bootstrap, "read_uncommitted")
    place = TopicPartition(topic, partition)
    deadline = time.monotonic() + 3
    try:
        while time.monotonic() < deadline:
            stable, end = (
                looking.get_watermark_offsets(place, 10)[1] for looking in (consumer, everything)
            )
            if stable == end:
                return
            time.sleep(0.05)
    finally:
        everything.close()


def _read_to_the_end(consumer: Consumer, topic: str, partition: int) -> list[Any]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages: list[Any] = []
    while True:
        for message in consumer.consume(10_000, 0.05):
            if message.error() is not None:
                return messages
            messages.append(message)
