"""Reads a range of one partition with confluent-kafka, for runs without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.contracts.source import SplitRange
from penstock.connectors.kafka.client import KafkaProperties, confluent, new_consumer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.errors import KafkaUnavailableError, LostRecordsError

if TYPE_CHECKING:
    import pyarrow as pa

_CONSUMED_AT_ONCE = 10_000
# Bounds the wait at the end of a range whose last offsets have no records.
_POLL_SECONDS = 0.1
_WATERMARK_SECONDS = 5.0


def read_split_range(
    properties: KafkaProperties,
    wanted: SplitRange,
    columns: Sequence[str],
    timeout: float,
    *,
    skip_lost_records: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as Spark's reader would, in batches of some columns.

    Offsets without a record (compacted, transaction markers) are skipped. Raises if the broker
    returns nothing for ``timeout`` seconds.
    """
    partition = KafkaTopicPartition.of_split(wanted.split)
    consumer = new_consumer(
        properties,
        enable_partition_eof="true",
        auto_offset_reset="earliest" if skip_lost_records else "error",
        # The default of Java's clients, and so of Spark's reader; librdkafka has another.
        isolation_level=properties.get("isolation.level", "read_uncommitted"),
    )
    try:
        place = confluent().TopicPartition(partition.topic, partition.partition, wanted.start)
        consumer.assign([place])
        for messages in _consume(consumer, partition, wanted, timeout, properties):
            yield _batch(messages, columns)
    finally:
        consumer.close()


def _consume(
    consumer: Any,
    partition: KafkaTopicPartition,
    wanted: SplitRange,
    timeout: float,
    properties: KafkaProperties,
) -> Iterator[list[Any]]:
    kafka = confluent()
    deadline = time.monotonic() + timeout
    reason = "no response"
    left = wanted.end - wanted.start
    while True:
        arrived = consumer.consume(min(_CONSUMED_AT_ONCE, left), _POLL_SECONDS)
        records = []
        ended = False
        for message in arrived:
            error = message.error()
            if error is None:
                ended = message.offset() >= wanted.end
                if not ended:
                    records.append(message)
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                # The offsets between the last record and the end of the range have none.
                ended = message.offset() >= wanted.end
                reason = f"{wanted.split} ends at offset {message.offset()}"
            elif error.code() == kafka.KafkaError._AUTO_OFFSET_RESET:
                place = kafka.TopicPartition(partition.topic, partition.partition)
                first, end = consumer.get_watermark_offsets(place, timeout=_WATERMARK_SECONDS)
                raise LostRecordsError(
                    partition.topic, partition.partition, wanted.start, first, end
                )
            else:
                reason = error.str()
            if ended:
                break
        if records:
            yield records
            deadline = time.monotonic() + timeout
            left = wanted.end - records[-1].offset() - 1
        if ended or left <= 0:
            return
        if time.monotonic() >= deadline:
            raise KafkaUnavailableError(properties["bootstrap.servers"], timeout, reason)


def _batch(messages: list[Any], columns: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    # The types are those of Spark's reader.
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    arrays = [pa.array(_column(name, messages), kinds[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _column(name: str, messages: list[Any]) -> list[Any]:
    if name == "timestamp":
        return [_timestamp(message) for message in messages]
    if name == "headers":
        return [_headers(message) for message in messages]
    return [getattr(message, name)() for message in messages]


def _timestamp(message: Any) -> int:
    kind, milliseconds = message.timestamp()
    return -1000 if kind == confluent().TIMESTAMP_NOT_AVAILABLE else milliseconds * 1000


def _headers(message: Any) -> list[dict[str, Any]] | None:
    pairs = message.headers()
    return pairs and [{"key": name, "value": value} for name, value in pairs]
