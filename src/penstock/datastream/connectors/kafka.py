"""Topics of Kafka, read and written."""

from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
]
