"""What the Kafka sink's builder rejects, and how records become Kafka records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.common.serialization import (
    ByteArraySchema,
    SerializationSchema,
    SimpleStringSchema,
)
from penstock.connectors.contracts.committer import CommitterContext
from penstock.connectors.contracts.sink import WriterContext
from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.sink.kafka_sink import KafkaSinkBuilder
from penstock.connectors.kafka.sink.producer import max_message_bytes
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaTopicSelector,
)
from penstock.errors import KafkaRecordError


def serializer(**parts: Any) -> KafkaRecordSerializationSchema:
    builder = KafkaRecordSerializationSchema.builder()
    builder.set_value_serialization_schema(parts.pop("value", SimpleStringSchema()))
    for name, part in {"topic": "orders", **parts}.items():
        if part is not None:
            getattr(builder, f"set_{name}")(part)
    return builder.build()


def builder(guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE) -> KafkaSinkBuilder:
    return (
        KafkaSink.builder()
        .set_bootstrap_servers("localhost:1")
        .set_delivery_guarantee(guarantee)
        .set_record_serializer(serializer())
    )


def test_exactly_once_requires_a_transactional_id_prefix() -> None:
    with pytest.raises(ValueError, match="EXACTLY_ONCE delivery guarantee requires a transac"):
        builder().build()
    assert builder().set_transactional_id_prefix("mine").build()
    assert builder(DeliveryGuarantee.AT_LEAST_ONCE).build()


def test_servers_and_a_serializer_are_required() -> None:
    with pytest.raises(ValueError, match="bootstrapServers"):
        KafkaSink.builder().set_record_serializer(serializer()).build()
    with pytest.raises(ValueError, match="recordSerializer"):
        KafkaSink.builder().set_bootstrap_servers("localhost:1").build()


def test_a_prefix_must_fit_into_a_transactional_id() -> None:
    with pytest.raises(ValueError, match="prefix is too long"):
        KafkaSink.builder().set_transactional_id_prefix("x" * 64_001)


@pytest.mark.parametrize(
    "method", ["set_bootstrap_servers", "set_transactional_id_prefix", "set_marker_topic"]
)
def test_values_that_are_not_strings_are_rejected(method: str) -> None:
    with pytest.raises(TypeError, match="must be a string; got None"):
        getattr(KafkaSink.builder(), method)(None)


@pytest.mark.parametrize("name", ["max.block.ms", "message.max.bytes", "transaction.timeout.ms"])
@pytest.mark.parametrize("value", ["abc", "-5", 0, None])
def test_a_property_that_is_not_a_number_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be a whole number above 0; got '{value}'"):
        builder(DeliveryGuarantee.NONE).set_property(name, value).build()


def test_a_topic_selector_requires_a_marker_topic() -> None:
    selecting = serializer(topic=None, topic_selector=lambda record: record)
    many = builder().set_transactional_id_prefix("p").set_record_serializer(selecting)
    with pytest.raises(ValueError, match="set_marker_topic"):
        many.build()
    assert many.set_marker_topic("markers").build()


def test_the_lost_marker_policy_is_one_of_three() -> None:
    for choice in ("fail", "skip", "publish"):
        assert (
            builder()
            .set_transactional_id_prefix("p")
            .set_property("penstock.kafka.on-lost-marker", choice)
        )
    with pytest.raises(ValueError, match="'fail', 'skip' or 'publish'; got 'guess'"):
        builder().set_property("penstock.kafka.on-lost-marker", "guess").build()


def test_a_sink_can_be_pickled() -> None:
    sink = builder().set_transactional_id_prefix("p").build()
    assert cloudpickle.loads(cloudpickle.dumps(sink))


def test_passwords_are_sent_only_to_tasks_that_connect_to_brokers(tmp_path: Path) -> None:
    def copied(guarantee: DeliveryGuarantee) -> bytes:
        sink = builder(guarantee).set_transactional_id_prefix("p")
        sink.set_property("sasl.password", "s3cret").set_property("max.request.size", 77)
        return bytes(cloudpickle.dumps(sink.build()))

    assert b"s3cret" in copied(DeliveryGuarantee.AT_LEAST_ONCE)
    data = copied(DeliveryGuarantee.EXACTLY_ONCE)
    assert b"s3cret" not in data
    in_the_task = cloudpickle.loads(data)
    context = WriterContext(0, 1, tmp_path, "n", None, "job", "a1", tmp_path)
    with pytest.raises(KafkaRecordError, match=r"message\.max\.bytes is 77"):
        in_the_task.writer(context).write("x" * 78)
    with pytest.raises(ValueError, match="not in its copies"):
        in_the_task.committer(CommitterContext("job", "a1", "step", tmp_path))


def test_only_exactly_once_has_a_committer(tmp_path: Path) -> None:
    context = CommitterContext("job", "a1", "step", tmp_path)
    assert builder(DeliveryGuarantee.NONE).build().committer(context) is None
    assert builder(DeliveryGuarantee.AT_LEAST_ONCE).build().committer(context) is None
    committer = builder().set_transactional_id_prefix("p").build().committer(context)
    assert committer is not None
    committer.close()


def test_invalid_arguments_are_rejected_by_name() -> None:
    with pytest.raises(TypeError, match="DeliveryGuarantee"):
        KafkaSink.builder().set_delivery_guarantee("exactly-once")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="recordSerializer"):
        KafkaSink.builder().set_record_serializer(SimpleStringSchema())  # type: ignore[arg-type]


def test_a_schema_requires_a_value_serializer_and_a_topic() -> None:
    with pytest.raises(ValueError, match="No value serializer is configured"):
        KafkaRecordSerializationSchema.builder().set_topic("a").build()
    with pytest.raises(ValueError, match="No topic selector is configured"):
        serializer(topic=None)


def test_nothing_is_set_twice() -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic("a")
    with pytest.raises(ValueError, match="Topic selector already set"):
        schema.set_topic_selector(lambda record: "b")
    schema.set_value_serialization_schema(SimpleStringSchema())
    with pytest.raises(ValueError, match="Value serializer already set"):
        schema.set_value_serialization_schema(SimpleStringSchema())
    schema.set_key_serialization_schema(SimpleStringSchema())
    with pytest.raises(ValueError, match="Key serializer already set"):
        schema.set_key_serialization_schema(SimpleStringSchema())


def test_a_message_has_a_value_and_a_key_if_there_is_a_key_schema() -> None:
    assert serializer().encoder()("a") == {"value": b"a"}
    keyed = serializer(key_serialization_schema=SimpleStringSchema("latin-1"))
    assert keyed.encoder()("é") == {"key": b"\xe9", "value": b"\xc3\xa9"}
    assert keyed.serialize("é") == b"\xc3\xa9"


def test_headers_timestamp_and_partition_come_from_functions() -> None:
    encode = serializer(
        header_provider=lambda record: {"length": b"%d" % len(record)},
        timestamp=len,
        partitioner=lambda record: None if record == "any" else 3,
    ).encoder()
    assert encode("abc") == {
        "key": None,
        "value": b"abc",
        "headers": [("length", b"3")],
        "timestamp": 3,
        "partition": 3,
    }
    assert "partition" not in encode("any")


class ByFirst(KafkaTopicSelector):
    def apply(self, data: Any) -> str:
        return f"topic-{data[0]}"


def test_topics_are_chosen_by_a_selector_or_a_function() -> None:
    assert serializer(topic=None, topic_selector=ByFirst()).topic_of("abc") == "topic-a"
    assert serializer(topic=None, topic_selector=lambda r: r).topic_of("abc") == "abc"
    assert serializer().topic_of("abc") == "orders"
    with pytest.raises(KafkaRecordError, match="a topic selector must return a name; got 7"):
        serializer(topic=None, topic_selector=lambda r: 7).topic_of("abc")
    with pytest.raises(TypeError, match="must be KafkaTopicSelector or a callable"):
        serializer(topic=None, topic_selector="topic")


class Returning(SerializationSchema):
    def __init__(self, data: Any) -> None:
        self._data = data

    def serialize(self, element: Any) -> Any:
        return self._data


def test_a_schema_must_return_bytes_or_none_for_a_tombstone() -> None:
    assert serializer(value=Returning(None)).encoder()("a") == {"value": None}
    assert serializer(value=Returning(bytearray(b"x"))).encoder()("a") == {"value": b"x"}
    assert serializer(value=ByteArraySchema()).encoder()(b"a") == {"value": b"a"}
    with pytest.raises(KafkaRecordError, match="the value of a Kafka record cannot be sent"):
        serializer(value=Returning("text")).encoder()("a")
    with pytest.raises(KafkaRecordError, match="the key of a Kafka record cannot be sent"):
        serializer(key_serialization_schema=Returning(1)).encoder()("a")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("timestamp", "now"),
        ("timestamp", -1),
        ("timestamp", 2**63),
        ("partitioner", 1.5),
        ("partitioner", 2**31),
        ("header_provider", [1]),
    ],
)
def test_invalid_headers_timestamps_and_partitions_are_rejected(name: str, given: Any) -> None:
    encode = serializer(**{name: lambda record: given}).encoder()
    with pytest.raises(KafkaRecordError, match="of a Kafka record cannot be sent"):
        encode("a")


def test_the_message_size_limit_is_read_under_both_names() -> None:
    assert max_message_bytes(KafkaProperties()) == 1_000_000
    assert max_message_bytes(KafkaProperties({"max.request.size": 7})) == 7
    assert max_message_bytes(KafkaProperties({"message.max.bytes": "9"})) == 9
