"""The task's half of a Kafka sink that promises at least once: records go to the broker at once."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from typing import Any

from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.sending import Sender, open_producer
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema, Message
from penstock.connectors.sink import SinkWriter

__all__ = ["DirectWriter"]

_MESSAGES_AT_ONCE = 1000


class DirectWriter(SinkWriter):
    """Sends while it writes; `stage` returns when brokers have everything.

    A task or micro-batch that is repeated sends its records again. A task without records never
    talks to a broker.
    """

    def __init__(self, schema: KafkaRecordSerializationSchema, properties: KafkaProperties) -> None:
        self._topic_of = schema.topic_of
        self._encode = schema.encoder()
        self._properties = properties
        self._producer: Any = None
        self._sender: Sender | None = None
        self._messages: dict[str, list[Message]] = {}

    def write(self, value: Any) -> None:
        topic = self._topic_of(value)
        messages = self._messages.get(topic)
        if messages is None:
            messages = self._messages[topic] = []
        messages.append(self._encode(value))
        if len(messages) >= _MESSAGES_AT_ONCE:
            self._send(topic)

    def stage(self) -> bytes:
        for topic in list(self._messages):
            self._send(topic)
        if self._sender is not None:
            # Every message arrives or fails within delivery.timeout.ms.
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
            self._producer = open_producer(_in_order(self._properties))
            self._sender = Sender(self._producer)
        self._sender.send(topic, self._messages.pop(topic))


def _in_order(properties: KafkaProperties) -> KafkaProperties:
    """Let a request that is repeated not overtake another.

    An idempotent producer would do that too, and take half a second to begin, in every task.
    """
    return KafkaProperties({"max.in.flight.requests.per.connection": 1, **properties})
