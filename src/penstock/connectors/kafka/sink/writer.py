"""Writers of the Kafka sink, in the tasks: one sends records, the other stages them."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections import defaultdict
from typing import Any

from penstock.connectors.contracts.sink import SinkWriter, WriterContext
from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.sink.committable import StagedRecords, encode
from penstock.connectors.kafka.sink.producer import MessageSender, open_producer
from penstock.connectors.kafka.sink.record_blocks import RecordBlockBuffer
from penstock.connectors.kafka.sink.serialization import KafkaRecordSerializationSchema, Message
from penstock.connectors.staging.staged_output import Spool
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import KafkaRecordError

_BATCH_MESSAGES = 1000
_MAX_INLINE_BYTES = 60 * 1024
# Upper bounds of what the client adds before it checks the size limit; they are not documented.
_MESSAGE_OVERHEAD = 36
_HEADER_OVERHEAD = 10


class KafkaWriter(SinkWriter):
    """Sends records at least once; `stage` returns when the brokers have all of them.

    A repeated task or micro-batch sends its records again. A task without records never connects.
    """

    def __init__(self, schema: KafkaRecordSerializationSchema, properties: KafkaProperties) -> None:
        self._topic_of = schema.topic_of
        self._encode = schema.encoder()
        self._properties = properties
        self._producer: Any = None
        self._sender: MessageSender | None = None
        self._messages: defaultdict[str, list[Message]] = defaultdict(list)

    def write(self, value: Any) -> None:
        topic = self._topic_of(value)
        messages = self._messages[topic]
        messages.append(self._encode(value))
        if len(messages) >= _BATCH_MESSAGES:
            self._send(topic)

    def stage(self) -> bytes:
        for topic in list(self._messages):
            self._send(topic)
        if self._sender is not None:
            # Terminates: each message is delivered or fails within delivery.timeout.ms.
            self._producer.flush()
            self._sender.check()
            self._producer.close()
        return b""

    def abort(self) -> None:
        self._messages.clear()
        if self._producer is not None:
            self._producer.purge()
            self._producer = self._sender = None

    def _send(self, topic: str) -> None:
        if self._sender is None:
            # One request at a time, so that a retry cannot reorder messages. An idempotent
            # producer would keep the order too, but takes half a second to start in every task.
            in_order = {"max.in.flight.requests.per.connection": 1}
            self._producer = open_producer(self._properties.with_defaults(in_order))
            self._sender = MessageSender(self._producer)
        self._sender.send(topic, self._messages.pop(topic))


class ExactlyOnceKafkaWriter(SinkWriter):
    """Stages serialized records, inline in the acknowledgement or in a file.

    A message that is too large is rejected here, where the record is known: whatever a checkpoint
    holds must be publishable.
    """

    def __init__(
        self,
        context: WriterContext,
        staging: StagingDirectory,
        schema: KafkaRecordSerializationSchema,
        max_message_bytes: int,
    ) -> None:
        self._spool = Spool(staging, f"{context.name}-0.piece", _MAX_INLINE_BYTES)
        self._topic_of = schema.topic_of
        self._encode = schema.encoder()
        self._max_message_bytes = max_message_bytes
        self._buffer = RecordBlockBuffer(self._spool.add)
        self._add = self._buffer.add
        self._records = 0

    def write(self, value: Any) -> None:
        message = self._encode(value)
        data, key = message["value"], message.get("key")
        size = (len(data) if data else 0) + (len(key) if key else 0) + _MESSAGE_OVERHEAD
        if headers := message.get("headers"):
            size += sum(map(_size_of_header, headers))
        if size > self._max_message_bytes:
            reason = f"it takes {size} bytes and message.max.bytes is {self._max_message_bytes}"
            part = "value"
            raise KafkaRecordError(part, data, reason)
        self._records += 1
        self._add(self._topic_of(value), message, size)

    def stage(self) -> bytes:
        self._buffer.flush()
        output = self._spool.finish()
        if not output.size:
            return b""
        return encode(StagedRecords(output.name, output.size, self._records, output.data))

    def abort(self) -> None:
        self._spool.abort()


def _size_of_header(header: tuple[str, bytes | None]) -> int:
    name, data = header
    return len(name.encode()) + (len(data) if data else 0) + _HEADER_OVERHEAD
