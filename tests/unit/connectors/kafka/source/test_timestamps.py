"""Records of Kafka with Kafka's times: each partition keeps its own."""

from __future__ import annotations

import pyarrow as pa

from penstock.common import Types
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.contracts.source import TimestampedChunk
from penstock.connectors.kafka.source.deserialization import (
    KafkaRecordDeserializationSchema,
    decode_with_timestamps,
)
from penstock.datastream.formats.json import JsonRowDeserializationSchema


def batch(rows: list[tuple[str, int, int, bytes]]) -> pa.RecordBatch:
    topics, partitions, times, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values, pa.binary()),
            pa.array(topics),
            pa.array(partitions, pa.int32()),
            pa.array(range(len(rows)), pa.int64()),
            pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC")),
        ],
        names=["value", "topic", "partition", "offset", "timestamp"],
    )


def test_each_partition_is_a_chunk_in_its_order() -> None:
    given = batch([("t", 0, 5, b"a"), ("t", 1, 90, b"b"), ("u", 0, 7, b"c"), ("t", 0, 4, b"d")])
    schema = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())
    assert list(decode_with_timestamps(schema, given)) == [
        TimestampedChunk("t-0", ["a", "d"], [5, 4]),
        TimestampedChunk("t-1", ["b"], [90]),
        TimestampedChunk("u-0", ["c"], [7]),
    ]


def test_a_dropped_record_drops_its_timestamp_too() -> None:
    row = Types.ROW_NAMED(["id"], [Types.INT()])
    json = JsonRowDeserializationSchema.builder().type_info(row).ignore_parse_errors().build()
    schema = KafkaRecordDeserializationSchema.value_only(json)
    given = batch([("t", 0, 1, b'{"id":1}'), ("t", 0, 2, b"no"), ("t", 0, 3, b'{"id":3}')])
    (chunk,) = decode_with_timestamps(schema, given)
    assert [(record.id, time) for record, time in zip(chunk.records, chunk.times, strict=True)] == [
        (1, 1),
        (3, 3),
    ]
