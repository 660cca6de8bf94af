"""Reading offsets of one partition with confluent-kafka, where Spark is not at hand."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.client import KafkaProperties, confluent, new_consumer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.source import SplitRange
from penstock.errors import KafkaUnavailableError, LostRecordsError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_offsets"]

_CONSUMED_AT_ONCE = 10_000
# How long to wait for the last records of a range where some offsets have none.
_POLL_SECONDS = 0.1
_WATERMARK_SECONDS = 5.0
_DEFAULT_AHEAD = 100_000
_DEFAULT_FETCH = 1024 * 1024
_SMALLEST_FETCH = 64 * 1024
_GENEROUS_RECORD = 512


def read_offsets(
    properties: KafkaProperties,
    wanted: SplitRange,
    columns: Sequence[str],
    seconds: float,
    *,
    skips_lost: bool,
) -> Iterator[pa.RecordBatch]:
    """Give the records of a range as Spark's reader would, in batches of some columns.

    Offsets without a record (compacted, of transactions) are passed over. Raises if nothing
    comes from the broker for that many ``seconds``.
    """
    partition = KafkaTopicPartition.of_split(wanted.split)
    consumer = new_consumer(
        properties,
        enable_partition_eof="true",
        auto_offset_reset="earliest" if skips_lost else "error",
        # The default of Java's clients, and so of Spark's reader, not of librdkafka.
        isolation_level=properties.get("isolation.level", "read_uncommitted"),
    )
    try:
        place = confluent().TopicPartition(partition.topic, partition.partition, wanted.start)
        consumer.assign([place])
        for messages in _until(consumer, partition, wanted, seconds, properties):
            yield _batch(messages, columns)
    finally:
        consumer.close()


def _fetched_at_once(wanted: SplitRange) -> dict[str, int]:
    """Keep the client from fetching far beyond the range: nobody will ask it for the rest."""
    records = wanted.end - wanted.start
    return {
        "queued.min.messages": min(max(records, 1), _DEFAULT_AHEAD),
        "fetch.message.max.bytes": min(
            max(records * _GENEROUS_RECORD, _SMALLEST_FETCH), _DEFAULT_FETCH
        ),
    }


def _until(
    consumer: Any,
    partition: KafkaTopicPartition,
    wanted: SplitRange,
    seconds: float,
    properties: KafkaProperties,
) -> Iterator[list[Any]]:
    kafka = confluent()
    deadline = time.monotonic() + seconds
    reason = "no answer"
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
                # What lies behind the last record and before the end has none.
                ended = message.offset() >= wanted.end
                reason = f"{wanted.split} ends at offset {message.offset()}"
            elif error.code() == kafka.KafkaError._AUTO_OFFSET_RESET:
                first, end = _watermarks(consumer, partition)
                raise LostRecordsError(
                    partition.topic, partition.partition, wanted.start, first, end
                )
            else:
                reason = error.str()
            if ended:
                break
        if records:
            yield records
            deadline = time.monotonic() + seconds
            left = wanted.end - records[-1].offset() - 1
        if ended or left <= 0:
            return
        if time.monotonic() >= deadline:
            raise KafkaUnavailableError(properties["bootstrap.servers"], seconds, reason)


def _watermarks(consumer: Any, partition: KafkaTopicPartition) -> tuple[int, int]:
    place = confluent().TopicPartition(partition.topic, partition.partition)
    first, end = consumer.get_watermark_offsets(place, timeout=_WATERMARK_SECONDS)
    return first, end


def _batch(messages: list[Any], columns: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [pa.array(*_column(name, messages)) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _column(name: str, messages: list[Any]) -> tuple[list[Any], Any]:
    """Give a column under the type it has in Spark."""
    import pyarrow as pa

    if name == "key":
        return [m.key() for m in messages], pa.binary()
    if name == "value":
        return [m.value() for m in messages], pa.binary()
    if name == "topic":
        return [m.topic() for m in messages], pa.string()
    if name == "partition":
        return [m.partition() for m in messages], pa.int32()
    if name == "offset":
        return [m.offset() for m in messages], pa.int64()
    if name == "timestamp":
        return [_timestamp(m) * 1000 for m in messages], pa.timestamp("us", "UTC")
    if name == "headers":
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        return [_headers(m) for m in messages], pa.list_(pair)
    message = f"no column {name!r}"
    raise ValueError(message)


def _timestamp(message: Any) -> int:
    kind, milliseconds = message.timestamp()
    return -1 if kind == confluent().TIMESTAMP_NOT_AVAILABLE else milliseconds


def _headers(message: Any) -> list[dict[str, Any]] | None:
    pairs = message.headers()
    return pairs and [{"key": name, "value": value} for name, value in pairs]
