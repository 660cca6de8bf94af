"""No source, sink, builder or configuration shows a credential."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.common import Configuration, SimpleStringSchema
from penstock.connectors.contracts.source import SparkRead
from penstock.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.connectors.nats import NatsSource
from penstock.datastream.connectors.postgres import PostgresSink

S3CRET = "s3cret"
KAFKA = {
    "sasl.username": "me",
    "sasl.password": S3CRET,
    "sasl.jaas.config": f'PlainLoginModule required username="me" password="{S3CRET}";',
    "ssl.keystore.key": S3CRET,
}


def kafka_source() -> object:
    builder = KafkaSource.builder().set_bootstrap_servers("b:9092").set_topics("t")
    builder.set_value_only_deserializer(SimpleStringSchema())
    return builder.set_properties(KAFKA)


def kafka_sink() -> object:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("t")
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    builder = KafkaSink.builder().set_bootstrap_servers("b:9092").set_record_serializer(serializer)
    for name, value in KAFKA.items():
        builder.set_property(name, value)
    return builder


def nats_source() -> object:
    builder = NatsSource.builder().set_servers(f"nats://me:{S3CRET}@host", f"nats://{S3CRET}@host")
    return builder.set_stream("S").set_durable("d").set_property("password", S3CRET)


def postgres_sink() -> object:
    return PostgresSink.builder().set_dsn(f"postgresql://me:{S3CRET}@db/shop").set_table("t")


def shown(value: object, depth: int = 0) -> str:
    """Return the repr of an object and of everything in its attributes."""
    text = repr(value)
    if depth < 4:
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        parts = (getattr(value, name, None) for name in names)
        text += "".join(shown(p, depth + 1) for p in parts if _is_ours(p))
    return text


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith("penstock")


@pytest.mark.parametrize("make", [kafka_source, kafka_sink, nats_source, postgres_sink])
def test_connectors_and_builders_show_no_credentials(make: Callable[[], object]) -> None:
    builder = make()
    assert S3CRET not in shown(builder)
    assert S3CRET not in shown(builder.build())  # type: ignore[attr-defined]


def test_what_spark_is_asked_to_read_shows_no_credentials() -> None:
    assert S3CRET not in repr(SparkRead({"kafka.sasl.password": S3CRET}, ("value",)))


def test_a_configuration_shows_no_credentials() -> None:
    configuration = Configuration()
    configuration.set_string("spark.hadoop.fs.s3a.secret.key", S3CRET)
    configuration.set_string("parallelism.default", "2")
    assert S3CRET not in repr(configuration) + str(configuration)
    assert "parallelism.default" in repr(configuration)
    assert configuration.get_string("spark.hadoop.fs.s3a.secret.key", "") == S3CRET
