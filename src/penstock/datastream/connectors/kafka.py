"""Kafka source and sink."""

from typing import TYPE_CHECKING

from penstock.common.pyflink.missing_names import missing_name_getattr
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.sink.kafka_sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.sink.serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from penstock.connectors.kafka.source.deserialization import KafkaRecordDeserializationSchema
from penstock.connectors.kafka.source.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.connectors.kafka.source.offsets_initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
)

__all__ = [
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
]

if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
