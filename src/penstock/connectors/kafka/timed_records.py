"""Records with the times that Kafka has of them, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema, milliseconds
from penstock.connectors.source import TimedChunk

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["timed_chunks"]


def timed_chunks(
    schema: KafkaRecordDeserializationSchema, batch: pa.RecordBatch
) -> Iterator[TimedChunk]:
    """Decode a batch with the columns topic, partition and timestamp, a chunk per partition.

    Event time is in order within a partition only, so each keeps its own.
    """
    for partition, part in _by_partition(batch):
        records = schema.decode(part, partition.topic)
        times = milliseconds(part.column("timestamp"))
        if len(records) != len(times):
            # Some were left out: which ones, only one after the other can tell.
            made = [schema.decode(part.slice(i, 1), partition.topic) for i in range(len(times))]
            records = [record for one in made for record in one]
            times = [time for one, time in zip(made, times, strict=True) for _ in one]
        yield TimedChunk(str(partition), records, times)


def _by_partition(
    batch: pa.RecordBatch,
) -> Iterator[tuple[KafkaTopicPartition, pa.RecordBatch]]:
    import pyarrow.compute as pc

    topics, numbers = batch.column("topic"), batch.column("partition")
    for topic in pc.unique(topics).to_pylist():
        of_topic = pc.equal(topics, topic)
        for number in pc.unique(numbers.filter(of_topic)).to_pylist():
            rows = pc.and_(of_topic, pc.equal(numbers, number))
            yield KafkaTopicPartition(topic, number), batch.filter(rows)
