"""Topics of Kafka, read and written."""

from typing import TYPE_CHECKING

from penstock.common.missing_names import asked_of
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from penstock.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

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

if not TYPE_CHECKING:  # a type checker shall find typos
    __getattr__ = asked_of(__name__)
